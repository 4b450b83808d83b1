"""The trace that a request is part of, as W3C Trace Context writes it; knows no tracer."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
)
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


@dataclass(frozen=True)
class Trace:
    """A valid `traceparent`, and the two ids in it as OpenTelemetry's logs name them."""

    traceparent: str
    trace_id: str
    span_id: str


def parse_traceparent(text: str) -> Trace | None:
    """The trace that a `traceparent` names, or None if it is none.

    Only later versions than 00 may have more fields; version ff and ids of zeros are invalid.
    """
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found["version"] == "ff" or (found["more"] and found["version"] == "00"):
        return None
    if found["trace"] == _NO_TRACE or found["span"] == _NO_SPAN:
        return None
    return Trace(text, found["trace"], found["span"])
