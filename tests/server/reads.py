"""Requests that the server tests send, and a gRPC stream that pairs replies with requests."""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton

QUESTIONS: dict[str, Any] = {
    "department": {
        "type": "choice",
        "instructions": "Which team should handle this ticket?",
        "criteria": {"billing": None, "account": None, "technical": None, "shipping": None},
    },
    "again": {"type": "noul", "instructions": "Will the customer write again?"},
}
TICKET = "I was charged twice this month. If nobody answers I will write again tomorrow."
TIMEOUT = 60.0


def text(name: str, *values: str | bytes) -> triton.InferInput:
    """A string tensor."""
    tensor = triton.InferInput(name, [len(values)], "BYTES")
    raw = [value if isinstance(value, bytes) else value.encode() for value in values]
    tensor.set_data_from_numpy(np.array(raw, dtype=np.object_))
    return tensor


def array(name: str, values: Any, dtype: type = np.int32) -> triton.InferInput:
    """A numeric tensor of any shape."""
    data = np.asarray(values, dtype=dtype)
    datatype = {"int32": "INT32", "uint64": "UINT64", "float32": "FP32"}[data.dtype.name]
    tensor = triton.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data)
    return tensor


def question_read(state: str = TICKET, questions: Any = None) -> list[triton.InferInput]:
    """A read at question level; `questions` may be raw text to be malformed on purpose."""
    asked = QUESTIONS if questions is None else questions
    raw = asked if isinstance(asked, str | bytes) else json.dumps(asked)
    return [text("text_input", state), text("questions", raw)]


def tensor_read(**changed: Any) -> list[triton.InferInput]:
    """A read of 20 prompt ids and a canvas of 4 with one slot; a None leaves its tensor out."""
    values: dict[str, Any] = {
        "input_ids": [2, *range(200, 219)],
        "canvas_ids": [300, 301, 302, 303],
        "slots": [1],
        "label_ids": [[310, 311, 312]],
        **changed,
    }
    return [
        value if isinstance(value, triton.InferInput) else array(name, value)
        for name, value in values.items()
        if value is not None
    ]


class Streams:
    """One gRPC stream; replies are collected by request id."""

    def __init__(self, url: str) -> None:
        self._client = triton.InferenceServerClient(url)
        self._replies: queue.Queue[tuple[triton.InferResult | None, Exception | None]] = (
            queue.Queue()
        )

    def __enter__(self) -> Streams:
        self._client.start_stream(lambda result, error: self._replies.put((result, error)))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream()
        self._client.close()

    def send(self, model: str, inputs: Sequence[triton.InferInput], **options: Any) -> None:
        """Sends one request; its replies are read with `next`."""
        self._client.async_stream_infer(model, list(inputs), **options)

    def next(self) -> triton.InferResult:
        """The next reply, or its error raised."""
        result, error = self._replies.get(timeout=TIMEOUT)
        if error is not None:
            raise error
        assert result is not None
        return result

    def one(
        self, model: str, inputs: Sequence[triton.InferInput], **options: Any
    ) -> triton.InferResult:
        """Sends one request and reads one reply."""
        self.send(model, inputs, **options)
        return self.next()


def is_final(result: triton.InferResult) -> bool:
    """Whether a reply carries the mark that no more follow."""
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def answers(result: triton.InferResult) -> Mapping[str, Any]:
    """The answers of a read at question level."""
    return dict(json.loads(scalar(result, "answers")))


def scalar(result: triton.InferResult, name: str) -> Any:
    """The one value of an output of one element, strings decoded."""
    value = result.as_numpy(name).reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else value
