"""Asks many isolated questions about one state in a single request over gRPC.

Each answer is what its question would get alone; the state is encoded once for all of them.
Run beside a server: python -m examples.clients.fan_out
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

from examples.clients.show import parser as read_parser
from examples.clients.show import print_result, state_of
from examples.clients.tensors import inputs

ABOUT = (
    "a payment", "a refund", "a password", "an account", "a parcel", "an address", "a crash",
    "an error message", "a delay", "a cancellation", "a discount", "a broken part",
)  # fmt: skip


def questions_of(path: Path) -> str:
    """The questions of a file, and whether the state is about each of a dozen things."""
    asked = json.loads(path.read_text(encoding="utf-8"))
    for thing in ABOUT:
        asked[thing] = {"type": "noul", "instructions": f"Is this message about {thing}?"}
    return json.dumps(asked, ensure_ascii=False)


def main() -> int:
    """Prints every answer, what was computed for them, and where the time went."""
    made = read_parser(__doc__ or "", "localhost:8001")
    made.add_argument("--joint", action="store_true", help="all questions in one canvas instead")
    chosen = made.parse_args()
    values = {
        "text_input": state_of(chosen),
        "questions": questions_of(chosen.questions),
        "isolation": "joint" if chosen.joint else "isolated",
        "seed": None if chosen.seed is None else np.uint64(chosen.seed),
        "return_timing": np.bool_(True),
    }
    with triton.InferenceServerClient(chosen.url) as client:
        result = client.infer("structured_read", inputs(triton, values))
    print_result(result)
    tokens, cached = (int(result.as_numpy(n)[0]) for n in ("num_input_tokens", "cached_tokens"))
    print(f"canvases: {len(result.as_numpy('slot_counts'))}")
    print(f"prompt: {tokens} tokens, {cached} of them from the prefix cache")
    print(f"milliseconds: {result.as_numpy('timing_ms')[0].decode()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
