"""A generation over gRPC streaming as an iterator of its responses; knows no display."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from examples.clients.tensors import inputs

MODEL = "diffusion_gemma"


@dataclass(frozen=True)
class Chunk:
    """One response: a draft, a finished canvas's text, or the last one with what it all took."""

    text: str
    canvas: int
    step: int
    draft: bool
    entropy: np.ndarray[Any, Any]  # [W], nats
    final: triton.InferResult | None


def generate(url: str, values: Mapping[str, Any], timeout: float = 120.0) -> Iterator[Chunk]:
    """Streams a generation; leaving the iteration early cancels it.

    Raises:
        InferenceServerException: the server refused or lost it.
        TimeoutError: nothing came for `timeout` seconds.
    """
    replies: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: replies.put((result, error)))
        try:
            asked = inputs(triton, {**values, "stream": np.bool_(True)})
            client.async_stream_infer(MODEL, asked)
            while (chunk := _next(replies, timeout)).final is None:
                yield chunk
            yield chunk
        finally:
            client.stop_stream(cancel_requests=True)


def _next(replies: queue.Queue[Any], timeout: float) -> Chunk:
    try:
        result, error = replies.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"no response within {timeout:.0f} s") from None
    if error is not None:
        raise error
    given = {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
    done = "finish_reason" in given
    return Chunk(
        text=given["text_output"][0].decode(),
        canvas=int(given.get("canvas", [0])[0]),
        step=0 if done else int(given.get("denoising_steps", [0])[0]),
        draft=bool(given["draft"][0]),
        entropy=given.get("canvas_entropy", np.empty(0, np.float32)),
        final=result if done else None,
    )
