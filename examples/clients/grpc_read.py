"""Asks a structured read over gRPC: `python -m examples.clients.grpc_read --help`."""

from __future__ import annotations

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton

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
    tensors = inputs_of(state_of(chosen), chosen.questions.read_text(encoding="utf-8"), chosen.seed)
    with triton.InferenceServerClient(chosen.url) as client:
        result = (ask_streaming if chosen.stream else ask)(client, tensors)
    values = {name: result.as_numpy(name).reshape(-1)[0] for name in OUTPUTS}
    print_read(json.loads(values["answers"]), int(values["executions"]), values["fusion"].decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
