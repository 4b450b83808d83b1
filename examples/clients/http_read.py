"""Asks a structured read over HTTP: `python -m examples.clients.http_read --help`."""

from __future__ import annotations

import json
import sys

import numpy as np
import tritonclient.http as triton

from examples.clients.show import parser, print_read, state_of

OUTPUTS = ("answers", "executions", "fusion")


def text(name: str, value: str) -> triton.InferInput:
    """A string tensor of one element."""
    tensor = triton.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([value.encode()], dtype=np.object_))
    return tensor


def inputs_of(state: str, questions: str, seed: int | None) -> list[triton.InferInput]:
    """The input tensors of a read at question level."""
    tensors = [text("text_input", state), text("questions", questions)]
    if seed is not None:
        number = triton.InferInput("seed", [1], "UINT64")
        number.set_data_from_numpy(np.array([seed], dtype=np.uint64))
        tensors.append(number)
    return tensors


def main() -> int:
    """Prints the answers and what they cost."""
    chosen = parser(__doc__ or "", "localhost:8000").parse_args()
    tensors = inputs_of(state_of(chosen), chosen.questions.read_text(encoding="utf-8"), chosen.seed)
    outputs = [triton.InferRequestedOutput(name) for name in OUTPUTS]
    with triton.InferenceServerClient(chosen.url) as client:
        result = client.infer("structured_read", tensors, outputs=outputs)
    values = {name: result.as_numpy(name).reshape(-1)[0] for name in OUTPUTS}
    print_read(json.loads(values["answers"]), int(values["executions"]), values["fusion"].decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
