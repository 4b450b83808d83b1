"""Asks a structured read over gRPC: `python -m examples.clients.grpc_read --help`."""

from __future__ import annotations

import queue
import sys

import tritonclient.grpc as triton

from examples.clients.show import OUTPUTS, parser, print_result, values_of
from examples.clients.tensors import inputs


def ask(
    client: triton.InferenceServerClient, tensors: list[triton.InferInput]
) -> triton.InferResult:
    """One request, one response, from the plain model."""
    outputs = [triton.InferRequestedOutput(name) for name in OUTPUTS]
    return client.infer("structured_read", tensors, outputs=outputs)


def ask_streaming(
    client: triton.InferenceServerClient, tensors: list[triton.InferInput]
) -> triton.InferResult:
    """The same from the streaming model, which sends one response and then the final mark."""
    replies: queue.Queue[tuple[triton.InferResult, Exception | None]] = queue.Queue()
    client.start_stream(lambda result, error: replies.put((result, error)))
    client.async_stream_infer("diffusion_gemma", tensors)
    result, error = replies.get(timeout=60)
    client.stop_stream()
    if error is not None:
        raise error
    return result


def main() -> int:
    """Prints the answers and what they cost."""
    options = parser(__doc__ or "", "localhost:8001")
    options.add_argument("--stream", action="store_true", help="use the streaming model")
    chosen = options.parse_args()
    tensors = inputs(triton, values_of(chosen))
    with triton.InferenceServerClient(chosen.url) as client:
        result = (ask_streaming if chosen.stream else ask)(client, tensors)
    print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
