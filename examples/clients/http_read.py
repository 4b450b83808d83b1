"""Asks a structured read over HTTP: `python -m examples.clients.http_read --help`."""

from __future__ import annotations

import sys

import tritonclient.http as triton

from examples.clients.show import OUTPUTS, parser, print_result, values_of
from examples.clients.tensors import inputs


def main() -> int:
    """Prints the answers and what they cost."""
    chosen = parser(__doc__ or "", "localhost:8000").parse_args()
    tensors = inputs(triton, values_of(chosen))
    outputs = [triton.InferRequestedOutput(name) for name in OUTPUTS]
    with triton.InferenceServerClient(chosen.url) as client:
        result = client.infer("structured_read", tensors, outputs=outputs)
    print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
