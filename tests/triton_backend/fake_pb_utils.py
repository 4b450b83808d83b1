"""A stand-in for Triton's Python module: tensors, requests, responses and metrics as values.

Like the real one it is filled only when a model starts, strips what an error crossing models loses,
and counts final responses, so that a missing or second one shows.
"""

from __future__ import annotations

import json
import threading
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FINAL = 1


@dataclass
class Tensor:
    _name: str
    _array: np.ndarray

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    INTERNAL, INVALID_ARG, UNAVAILABLE, CANCELLED = (
        "internal",
        "invalid",
        "unavailable",
        "cancelled",
    )

    def __init__(self, message, code="internal"):
        self._message, self._code = message, code

    def message(self):
        return self._message

    def code(self):
        return self._code


@dataclass
class InferenceResponse:
    tensors: list = field(default_factory=list)
    _error: TritonError | None = None

    def __init__(self, output_tensors=(), error=None):
        self.tensors, self._error = list(output_tensors), error

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def output_tensors(self):
        return self.tensors

    def numpy(self):
        return {tensor.name(): tensor.as_numpy() for tensor in self.tensors}


class Sender:
    def __init__(self):
        self.responses: list[InferenceResponse] = []
        self.done = threading.Event()

    def send(self, response=None, flags=0):
        assert not self.done.is_set(), "a response after the final one"
        self.responses.append(response)
        if flags == FINAL:
            self.done.set()

    def is_cancelled(self):
        return False

    def only(self) -> InferenceResponse:
        """The one response, which was final."""
        assert self.done.wait(10), "no final response"
        assert len(self.responses) == 1
        return self.responses[0]


@dataclass
class Request:
    arrays: dict[str, np.ndarray]
    _parameters: dict[str, Any] = field(default_factory=dict)
    sender: Sender = field(default_factory=Sender)
    _timeout: int = 0

    def timeout(self):
        return self._timeout

    def inputs(self):
        return [Tensor(name, array) for name, array in self.arrays.items()]

    def parameters(self):
        return json.dumps(self._parameters) if self._parameters else ""

    def request_id(self):
        return "same"

    def requested_output_names(self):
        return {"slot_probs", "executions"}

    def get_response_sender(self):
        return self.sender


class MetricFamily:
    COUNTER, GAUGE, HISTOGRAM = range(3)
    made: list[str] = []  # noqa: RUF012 - reset for every module

    def __init__(self, name, description, kind):
        assert name not in self.made, "a family is made twice"
        self.made.append(name)
        self.kind = kind

    def Metric(self, labels, buckets=None):
        assert (buckets is not None) == (self.kind == self.HISTOGRAM)
        assert {"model", "version"} <= set(labels)
        return types.SimpleNamespace(increment=abs, set=abs, observe=abs)


def make_module(engine) -> types.ModuleType:
    """The module; `engine()` is the model that requests from another model reach."""
    module = types.ModuleType("triton_python_backend_utils")

    class InferenceRequest:
        def __init__(self, model_name, request_id, requested_output_names, inputs, parameters):
            assert isinstance(requested_output_names, list)
            assert all(isinstance(value, bool | int | str) for value in parameters.values())
            arrays = {tensor.name(): tensor.as_numpy() for tensor in inputs}
            self.request = Request(arrays, parameters)

        def exec(self, decoupled):
            assert decoupled
            engine().execute([self.request])
            response = self.request.sender.only()
            if response.has_error():
                yield InferenceResponse(error=TritonError(response.error().message()))
            else:
                yield response
            yield InferenceResponse()

    module.Tensor, module.TritonError = Tensor, TritonError
    module.InferenceResponse, module.InferenceRequest = InferenceResponse, InferenceRequest
    module.MetricFamily = type("MetricFamily", (MetricFamily,), {"made": []})
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    return module
