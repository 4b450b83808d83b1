"""What a GPU run consists of: cases, what they find, and which are dropped; imports no torch.

A case names a function "module:function" that takes the worker's context and the case's arguments
and yields findings and timings, so that what it found before a failure is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


class NotHereError(RuntimeError):
    """This machine lacks what a case needs; the message is one sentence."""


SPARE_GIB = 1.0
"""Memory that is left alone beside what a case says it takes."""


@dataclass(frozen=True)
class Case:
    """One thing to check or to measure; seconds and GiB are what it takes on an H200, at most.

    One that `needs_gpu` is left out under the interpreter.
    """

    name: str
    function: str
    seconds: float
    gib: float = 0.5
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_gpu: bool = False

    @property
    def part(self) -> str:
        """What stands before the colon of its name."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Finding:
    """How far something is from what it should be; without a bound it is only told."""

    what: str
    error: float
    bound: float | None = None

    @property
    def good(self) -> bool:
        return self.bound is None or self.error <= self.bound


@dataclass(frozen=True)
class Timed:
    """Median milliseconds of one path, replayed as a CUDA graph and launched one by one.

    `ms` is None where it could not be captured, `note` says why. `bytes` and `flops` are the least
    that the work takes, by benchmarks.gpu_counts. Paths of one `group` do the same work; `tokens`
    are what it brings forth.
    """

    group: str
    path: str
    ms: float | None
    eager_ms: float
    bytes: int = 0
    flops: int = 0
    tokens: int = 0
    note: str = ""

    @property
    def best(self) -> float:
        """The milliseconds that count: a graph's, where there is one."""
        return self.eager_ms if self.ms is None else self.ms


@dataclass
class Outcome:
    """What became of one case: ok, off (out of bounds), skipped, dropped, failed or crashed."""

    name: str
    status: str = "ok"
    reason: str = ""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    timings: list[Timed] = field(default_factory=list)

    def add(self, found: Finding | Timed) -> None:
        """Takes one more finding or timing; a finding out of bounds makes the case off."""
        if isinstance(found, Timed):
            self.timings.append(found)
            return
        self.findings.append(found)
        if not found.good and self.status == "ok":
            self.status, self.reason = "off", f"{found.what}: {found.error:.2g} > {found.bound:.2g}"

    def to_json(self) -> dict[str, Any]:
        """As an object of JSON, which knows no infinities."""
        values = asdict(self)
        for finding in values["findings"]:
            if not math.isfinite(finding["error"]):
                finding["error"] = 1e30
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        findings = [Finding(**finding) for finding in values["findings"]]
        timings = [Timed(**timing) for timing in values["timings"]]
        return cls(**{**values, "findings": findings, "timings": timings})


def reason_to_drop(case: Case, seconds_left: float, free_gib: float) -> str:
    """Why a case cannot run with what is left, or nothing."""
    if case.gib + SPARE_GIB > free_gib:
        return f"needs {case.gib + SPARE_GIB:.1f} GiB of memory, {free_gib:.1f} are free"
    if case.seconds > seconds_left:
        return f"needs {case.seconds:.0f} s, {max(seconds_left, 0):.0f} s of the budget are left"
    return ""


def chosen(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases of a table whose names contain one of `only`, in order; all without `only`."""
    return [case for case in cases if not only or any(text in case.name for text in only)]
