"""Translates between Triton's requests and responses and this project's values; decides nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import triton_python_backend_utils as pb_utils

from triton_backend import outputs
from triton_backend.core import ErrorKind, Piece, Reply, RequestError
from triton_backend.fields import Array
from triton_backend.holding import Holding
from triton_backend.metric_families import Family
from triton_backend.metrics import Metric
from triton_backend.parse import Parsed
from triton_backend.request_fields import TIMEOUT

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

_log = logging.getLogger(__name__)


def read_inputs(request: Any) -> dict[str, Array]:
    """The inputs that the client sent, by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def read_parameters(request: Any) -> dict[str, Any]:
    """The request's parameters, those that front ends add among them, and its own timeout."""
    parameters: dict[str, Any] = json.loads(request.parameters() or "{}")
    if timeout := request.timeout():
        parameters[TIMEOUT] = timeout
    return parameters


class TritonClient:
    """A client that waits for the responses to its request; `parsed` is what it asked.

    `observe` is told the seconds to the first tokens or the answer, once, before they are sent.
    """

    def __init__(self, request: Any, observe: Callable[[float], None]) -> None:
        self._arrived: float | None = time.monotonic()
        self._observe = observe
        self._sender = request.get_response_sender()
        self.parameters = read_parameters(request)
        self.parsed: Parsed | None = None

    def open_stream(self) -> None:
        """Sends a chunk of no tokens, so that a front end notices at once when its client goes."""
        self._stream(outputs.empty_chunk())

    def send_piece(self, piece: Piece) -> None:
        """Sends part of a generation, if it is streamed."""
        assert self.parsed is not None
        generation = piece.request.generation
        if generation is not None and generation.stream:
            self._observe_first()
            self._stream(outputs.chunk(piece, self.parsed.log_probs))

    def send(self, reply: Reply) -> None:
        """Sends the reply, which is final."""
        if reply.error is not None:
            self.refuse(reply.error)
            return
        try:
            self._answer(reply)
        except Exception as error:  # noqa: BLE001 - without a final response it waits for ever
            _log.exception("an answer could not be sent")
            self.refuse(RequestError("answer", "is not sent", repr(error), ErrorKind.INTERNAL))

    def refuse(self, error: RequestError) -> None:
        """Sends an error, which is final; a fault of ours in a trace is logged with its ids."""
        trace = self.parsed.treatment.trace if self.parsed is not None else None
        if trace is not None and error.kind in (ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE):
            ids = f"trace_id={trace.trace_id} span_id={trace.span_id}"
            _log.warning("a request failed: %s; %s", error, ids)
        forwarded = _FORWARDED in self.parameters
        message = f"{error.kind.value}{_MARK}{error}" if forwarded else str(error)
        _send(self._sender, _refusal(message, error.kind))

    def is_cancelled(self) -> bool:
        cancelled: bool = self._sender.is_cancelled()
        return cancelled

    def _answer(self, reply: Reply) -> None:
        assert self.parsed is not None
        self._observe_first()
        arrays = outputs.final(reply, self.parsed, time.monotonic() - reply.made)
        _send(self._sender, pb_utils.InferenceResponse(_tensors(arrays)))

    def _observe_first(self) -> None:
        if self._arrived is not None:
            self._observe(time.monotonic() - self._arrived)
            self._arrived = None

    def _stream(self, arrays: dict[str, Array]) -> None:
        self._sender.send(pb_utils.InferenceResponse(_tensors(arrays)))


def _send(sender: Any, response: Any) -> None:
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _tensors(arrays: dict[str, Array]) -> list[Any]:
    return [pb_utils.Tensor(name, array) for name, array in arrays.items()]


def forward(request: Any, sender: Any, model: str) -> None:
    """Answers a request with another model's only response to the same inputs."""
    try:
        response = _only(request, model)
    except Exception as error:  # noqa: BLE001 - without a final response the client waits for ever
        response = _refusal(f"{model} could not be asked: {error}", ErrorKind.INTERNAL)
    _send(sender, response)


def relay(request: Any, sender: Any, model: str) -> None:
    """Answers a request of a batch of one with all of another model's responses, as they come."""
    try:
        inputs = [pb_utils.Tensor(t.name(), t.as_numpy()[0]) for t in request.inputs()]
        for response in _ask(request, inputs, model):
            sender.send(response if response.has_error() else _batched(response))
    except Exception as error:  # noqa: BLE001 - without a final response the client waits for ever
        sender.send(_refusal(f"{model} could not be asked: {error}", ErrorKind.INTERNAL))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _batched(response: Any) -> Any:
    """A response as a batch of one."""
    arrays = {tensor.name(): tensor.as_numpy()[None] for tensor in response.output_tensors()}
    return pb_utils.InferenceResponse(_tensors(arrays))


def _only(request: Any, model: str) -> Any:
    if any(tensor.name() == "stream" and tensor.as_numpy().any() for tensor in request.inputs()):
        return _refusal(
            f"stream is true, this model answers once, ask {model} for a stream", ErrorKind.INVALID
        )
    found = _refusal(f"{model} did not answer", ErrorKind.INTERNAL)
    for response in _ask(request, request.inputs(), model):
        found = response
    return found


def _ask(request: Any, inputs: list[Any], model: str) -> Iterator[Any]:
    """Another model's responses that say something, its errors in their own words and code."""
    asked = pb_utils.InferenceRequest(
        model_name=model,
        request_id=request.request_id(),
        requested_output_names=sorted(request.requested_output_names()),
        inputs=inputs,
        parameters=_plain(read_parameters(request)) | {_FORWARDED: True},
    )
    responses = asked.exec(decoupled=True)
    # To its end even after the answer: a response left unread keeps the server from stopping.
    for response in responses:
        if response.has_error():
            yield _unwrapped(response.error().message())
        elif response.output_tensors():
            yield pb_utils.InferenceResponse(response.output_tensors())
    _ANSWERED.hold(responses)


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
        buckets = {"buckets": list(family.buckets)} if family.buckets else {}
        metric: Metric = families[family.name].Metric(labels=labels, **buckets)
        return metric

    return make
