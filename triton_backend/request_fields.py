"""Reads how a request is to be treated: its turn, its patience, what it wants told; one rule each.

These may be inputs or request parameters of the same names; if both are given, the input counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_backend import fields
from triton_backend.core import RequestError
from triton_backend.fields import Array, Inputs
from triton_backend.options import Range, option
from triton_backend.trace import Trace, parse_traceparent

PRIORITIES = Range(-8, 8)
DAY_MS = 86_400_000
QUEUE_TIMEOUT_MS = Range(0, DAY_MS, above=True)
MAX_TENANT_BYTES = 64
MAX_SALT_BYTES = 256
MAX_TRACE_BYTES = 512
NUMBERS = ("priority", "queue_timeout_ms")
NAMES = (*NUMBERS, "tenant", "cache_salt", "return_timing", "traceparent")
TIMEOUT = "timeout"
"""Triton's own parameter, in microseconds; 0 for none."""


@dataclass(frozen=True)
class Treatment:
    """What a request asks for beside its answer; `queue_timeout` in seconds, 0 for the server's."""

    priority: int = 0
    tenant: str = ""
    salt: str = ""
    queue_timeout: float = 0.0
    timing: bool = False
    trace: Trace | None = None


def with_parameters(inputs: Inputs, parameters: Mapping[str, Any]) -> Inputs:
    """The inputs, and those of NAMES that came as parameters; others are passed over.

    Raises:
        RequestError: a parameter that is no text, number or boolean.
    """
    given = {name: _array(name, parameters[name]) for name in NAMES if name in parameters}
    if TIMEOUT in parameters and (milliseconds := _timeout_ms(parameters[TIMEOUT])):
        given.setdefault("queue_timeout_ms", np.array([milliseconds]))
    return {**given, **inputs}


def read_treatment(inputs: Inputs) -> Treatment:
    """How a request is to be treated.

    Raises:
        RequestError: a value out of its range, a text that is too long, or no trace context.
    """
    milliseconds = option(inputs, "queue_timeout_ms", QUEUE_TIMEOUT_MS, 0.0)
    return Treatment(
        priority=option(inputs, "priority", PRIORITIES, 0),
        tenant=_text(inputs, "tenant", MAX_TENANT_BYTES),
        salt=_text(inputs, "cache_salt", MAX_SALT_BYTES),
        queue_timeout=milliseconds / 1e3,
        timing=fields.flag(inputs, "return_timing"),
        trace=_trace(inputs),
    )


def _text(inputs: Inputs, name: str, most: int) -> str:
    return fields.text(inputs, name, most) if name in inputs else ""


def _trace(inputs: Inputs) -> Trace | None:
    text = _text(inputs, "traceparent", MAX_TRACE_BYTES)
    if text and (found := parse_traceparent(text)) is not None:
        return found
    if text:
        wanted = "W3C Trace Context wants 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"
        raise RequestError("traceparent", f"is {text!r}", f"{wanted}, neither id all zeros")
    return None


def _array(name: str, value: Any) -> Array:
    if isinstance(value, str):
        # A forwarding model can hand on a fraction as text only.
        if name in NUMBERS and (number := _number(value)) is not None:
            return np.array([number])
        return np.array([value.encode("utf-8", "surrogatepass")], np.object_)
    if not isinstance(value, bool | int | float):
        raise RequestError(f"parameter {name!r}", f"is {value!r}", "one value is needed")
    return np.array([value])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _timeout_ms(value: Any) -> float:
    number = _number(str(value))
    if isinstance(value, bool) or number is None or not number >= 0:
        raise RequestError(
            f"parameter {TIMEOUT!r}", f"is {value!r}", "microseconds from 0 on are needed"
        )
    return min(number / 1e3, DAY_MS)
