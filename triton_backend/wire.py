"""Translates between Triton's requests and responses and this project's values; decides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from triton_backend.core import ErrorKind, Reply, RequestError
from triton_backend.fields import Array
from triton_backend.holding import Holding
from triton_backend.metrics import STEP_SECONDS_BUCKETS, Family, Metric
from triton_backend.questions import Question, answers

# By name: the server fills its module only after this one is imported.
_CODES = {
    ErrorKind.INVALID: "INVALID_ARG",
    ErrorKind.UNAVAILABLE: "UNAVAILABLE",
    ErrorKind.CANCELLED: "CANCELLED",
    ErrorKind.INTERNAL: "INTERNAL",
}
# An error loses its code on the way from model to model, so a forwarded one carries it in words.
_FORWARDED = "triton_forwarded_read"
_MARK = "\x1f"
# Triton's thread for clean-ups drops its reference to the responses of a finished request without
# Python's lock. Were it the last one, their arrays would be freed beside running Python code.
_ANSWERED = Holding(seconds=5.0)


def read_inputs(request: Any) -> dict[str, Array]:
    """The inputs that the client sent, by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def read_parameters(request: Any) -> dict[str, Any]:
    """The request's parameters, those that front ends add among them."""
    parameters: dict[str, Any] = json.loads(request.parameters() or "{}")
    return parameters


class TritonClient:
    """A client that waits for the one response to its request; `questions` are what it asked."""

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        self.parameters = read_parameters(request)
        self.questions: tuple[Question, ...] = ()

    def send(self, reply: Reply) -> None:
        """Sends the reply, which is final."""
        if reply.error is not None:
            self.refuse(reply.error)
        else:
            _send(self._sender, pb_utils.InferenceResponse(_tensors(reply, self.questions)))

    def refuse(self, error: RequestError) -> None:
        """Sends an error, which is final."""
        forwarded = _FORWARDED in self.parameters
        message = f"{error.kind.value}{_MARK}{error}" if forwarded else str(error)
        _send(self._sender, _refusal(message, error.kind))

    def is_cancelled(self) -> bool:
        cancelled: bool = self._sender.is_cancelled()
        return cancelled


def _send(sender: Any, response: Any) -> None:
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _tensors(reply: Reply, questions: tuple[Question, ...]) -> list[Any]:
    read = reply.reads[0]
    arrays = {
        "slot_log_probs": read.log_probs,
        "slot_probs": read.probs,
        "slot_label_mass": read.label_mass,
        "slot_entropy": read.entropy,
        "slot_argmax": read.argmax,
        "executions": np.array([reply.executions], np.int32),
        "fusion": np.array([reply.fusion.encode()], np.object_),
        "queue_ms": np.array([reply.queue_seconds * 1e3], np.float32),
        "execution_ms": np.array([reply.execution_seconds * 1e3], np.float32),
        "num_input_tokens": np.array([len(reply.request.prompt_ids)], np.int32),
    }
    if questions:
        text = json.dumps(answers(questions, read.probs.tolist()), ensure_ascii=False)
        arrays["answers"] = np.array([text.encode()], np.object_)
    return [pb_utils.Tensor(name, array) for name, array in arrays.items()]


def forward(request: Any, sender: Any, model: str) -> None:
    """Answers a request with another model's only response to the same inputs."""
    try:
        response = _ask(request, model)
    except Exception as error:  # noqa: BLE001 - without a final response the client waits for ever
        response = _refusal(f"{model} could not be asked: {error}", ErrorKind.INTERNAL)
    _send(sender, response)


def _ask(request: Any, model: str) -> Any:
    asked = pb_utils.InferenceRequest(
        model_name=model,
        request_id=request.request_id(),
        requested_output_names=sorted(request.requested_output_names()),
        inputs=request.inputs(),
        parameters=_plain(read_parameters(request)) | {_FORWARDED: True},
    )
    found = _refusal(f"{model} did not answer", ErrorKind.INTERNAL)
    responses = asked.exec(decoupled=True)
    # To its end even after the answer: a response left unread keeps the server from stopping.
    for response in responses:
        if response.has_error():
            found = _unwrapped(response.error().message())
        elif response.output_tensors():
            found = pb_utils.InferenceResponse(response.output_tensors())
    _ANSWERED.hold(responses)
    return found


def forget_answered() -> None:
    """Lets go of the last forwarded responses, while the server's memory that they use is there."""
    _ANSWERED.release()


def _plain(parameters: dict[str, Any]) -> dict[str, bool | int | str]:
    """The parameters in the only types that a model may hand on."""
    return {
        name: value if isinstance(value, bool | int | str) else json.dumps(value)
        for name, value in parameters.items()
    }


def _unwrapped(message: str) -> Any:
    kind, mark, said = message.partition(_MARK)
    return _refusal(said, ErrorKind(kind)) if mark else _refusal(message, ErrorKind.INTERNAL)


def _refusal(message: str, kind: ErrorKind) -> Any:
    code = getattr(pb_utils.TritonError, _CODES[kind])
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def metric_maker(model: str, version: str) -> Callable[[Family, str], Metric]:
    """Makes metrics on the server's page, labelled with the model as its own are."""
    families: dict[str, Any] = {}

    def make(family: Family, label: str) -> Metric:
        if family.name not in families:
            kind = getattr(pb_utils.MetricFamily, family.kind.upper())
            families[family.name] = pb_utils.MetricFamily(
                name=family.name, description=family.help, kind=kind
            )
        labels = {"model": model, "version": version}
        if family.label:
            labels[family.label] = label
        buckets = {"buckets": list(STEP_SECONDS_BUCKETS)} if family.kind == "histogram" else {}
        metric: Metric = families[family.name].Metric(labels=labels, **buckets)
        return metric

    return make
