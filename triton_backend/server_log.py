"""Reads what the server writes: why a start failed, and samples of its metrics page."""

from __future__ import annotations

import re

_MODEL = re.compile(r"failed to load '(?P<model>\w+)' version \d+: \w+(?: \w+)*: (?P<reason>.*)")
_CLASS = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): ")
_SERVER = re.compile(r"^error: (?P<reason>.*)", re.MULTILINE)
_ROUTINE = re.compile(r"^(?:I\d{4} .*|[|+].*|Signal \(15\) received\.|\s*)$")
_SAMPLE = re.compile(r"^(?P<name>[^#\s{]+(?:\{.*\})?)\s+(?P<value>\S+)$", re.MULTILINE)


def failure(log: str, code: int) -> str:
    """Why the server ended with `code`, in one sentence: the model's own if it gave one."""
    if found := _MODEL.search(log):
        reason = found["reason"].removesuffix('"').replace('\\"', '"').replace("\\n", "\n")
        return f"{found['model']}: {_CLASS.sub('', reason.splitlines()[0]).strip()}"
    if found := _SERVER.search(log):
        return f"The server stopped: {found['reason']}"
    tail = next((line for line in reversed(log.splitlines()) if line.strip()), "it wrote nothing")
    return f"The server stopped with code {code}: {tail.strip()}"


def is_routine(line: str) -> bool:
    """Whether a log line is information, part of a table, or blank."""
    return _ROUTINE.match(line) is not None


def samples(page: str) -> dict[str, float]:
    """Every sample of a Prometheus text page, keyed by name and labels as written."""
    return {found["name"]: float(found["value"]) for found in _SAMPLE.finditer(page)}
