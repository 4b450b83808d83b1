"""The JSON of a GPU run: what was found, ratios that follow from it, goals; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_cases import Outcome, Timed

FORMAT = 1
MOST_OVER_FLOOR = 1.4
LEAST_OF_SDPA = 0.6
STATUSES = ("ok", "off", "skipped", "dropped", "failed", "crashed")


@dataclass(frozen=True)
class Ceilings:
    """What the device gave in the same run: GB/s of a copy, TFLOP/s of a bf16 product."""

    copy: float
    matmul: float


@dataclass(frozen=True)
class Goal:
    """A ratio that is asked for; without a limit it is only told."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        above = self.least is None or self.value >= self.least
        return above and (self.most is None or self.value <= self.most)


def ceilings_of(outcomes: Sequence[Outcome]) -> Ceilings | None:
    """The measured ceilings, where that case ran."""
    every = {(t.group, t.path): t for outcome in outcomes for t in outcome.timings}
    copy, matmul = every.get(("ceilings", "copy")), every.get(("ceilings", "matmul"))
    if copy is None or matmul is None:
        return None
    return Ceilings(copy.bytes / copy.best / 1e6, matmul.flops / matmul.best / 1e9)


def goals_of(outcomes: Sequence[Outcome]) -> list[Goal]:
    """Every ratio of a run, in the order of its cases."""
    ceilings = ceilings_of(outcomes)
    # The same work may be measured in several cases: peers that may fail have cases of their own.
    groups: dict[str, dict[str, Timed]] = {}
    for timing in (timing for outcome in outcomes for timing in outcome.timings):
        groups.setdefault(timing.group, {})[timing.path] = timing
    found: list[Goal] = []
    for group, paths in groups.items():
        found += _reads(group, paths, ceilings)
        found += _attention(group, paths)
        found += _others(group, paths)
    return found


def _reads(group: str, paths: dict[str, Timed], ceilings: Ceilings | None) -> Iterator[Goal]:
    fused, split = paths.get("fused"), paths.get("split")
    if fused is None:
        return
    if ceilings is not None:
        floor = fused.bytes / ceilings.copy / 1e6
        ratio = fused.best / floor
        # At many rows the products, not the weights' bytes, are what a read takes.
        asked = MOST_OVER_FLOOR if group.startswith("1 x 512 ") else None
        yield Goal(f"fused read / memory floor, {group}", ratio, most=asked)
    if split is not None:
        yield Goal(f"split read / fused read, {group}", split.best / fused.best)


def _attention(group: str, paths: dict[str, Timed]) -> Iterator[Goal]:
    sdpa = [timing.best for path, timing in paths.items() if path.startswith("sdpa")]
    if "dg" in paths and sdpa:
        share = min(sdpa) / paths["dg"].best
        yield Goal(f"attention, share of SDPA's speed, {group}", share, least=LEAST_OF_SDPA)
    if "dg" in paths and "flex_attention" in paths:
        share = paths["flex_attention"].best / paths["dg"].best
        yield Goal(f"attention, share of flex_attention's speed, {group}", share)


def _others(group: str, paths: dict[str, Timed]) -> Iterator[Goal]:
    for peer in ("torch", "torch grouped_mm", "loop"):
        if "dg" in paths and peer in paths:
            yield Goal(f"{peer} / dg, {group}", paths[peer].best / paths["dg"].best)


@dataclass(frozen=True)
class Heading:
    """What stands above the cases."""

    kind: str
    device: str
    date: str
    software: dict[str, str]
    seconds: float
    budget: float


def document(heading: Heading, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The whole as an object of JSON."""
    ceilings = ceilings_of(outcomes)
    return {
        "format": FORMAT,
        **vars(heading),
        "ceilings": None if ceilings is None else vars(ceilings),
        "goals": [{**vars(goal), "met": goal.met} for goal in goals_of(outcomes)],
        "cases": [outcome.to_json() for outcome in outcomes],
    }


_NUMBER: tuple[type, ...] = (int, float)
_MAYBE: tuple[type, ...] = (int, float, type(None))
_TEXT: tuple[type, ...] = (str,)
_TOP: dict[str, tuple[type, ...]] = {
    "format": (int,), "kind": _TEXT, "device": _TEXT, "date": _TEXT, "software": (dict,),
    "seconds": _NUMBER, "budget": _NUMBER, "ceilings": (dict, type(None)),
    "goals": (list,), "cases": (list,),
}  # fmt: skip
_GOAL = {"what": _TEXT, "value": _NUMBER, "least": _MAYBE, "most": _MAYBE, "met": (bool,)}
_CASE: dict[str, tuple[type, ...]] = {
    "name": _TEXT, "status": _TEXT, "reason": _TEXT, "seconds": _NUMBER,
    "findings": (list,), "timings": (list,),
}  # fmt: skip
_FINDING = {"what": _TEXT, "error": _NUMBER, "bound": _MAYBE}
_TIMING = {
    "group": _TEXT, "path": _TEXT, "ms": _MAYBE, "eager_ms": _NUMBER, "bytes": (int,),
    "flops": (int,), "tokens": (int,), "note": _TEXT,
}  # fmt: skip


def problems(values: Any) -> list[str]:
    """What of a document is not as this release writes it; nothing when all is."""
    found = list(_fields(values, _TOP, "document"))
    if found:
        return found
    if values["format"] != FORMAT or values["kind"] not in ("check", "bench"):
        found.append(f"document: format {values['format']!r} or kind {values['kind']!r} is unknown")
    for number, goal in enumerate(values["goals"]):
        found += _fields(goal, _GOAL, f"goals[{number}]")
    for number, case in enumerate(values["cases"]):
        found += _case(case, f"cases[{number}]")
    return found


def _case(case: Any, where: str) -> Iterator[str]:
    wrong = list(_fields(case, _CASE, where))
    yield from wrong
    if wrong:
        return
    if case["status"] not in STATUSES:
        yield f"{where}: status {case['status']!r} is not one of {', '.join(STATUSES)}"
    for number, finding in enumerate(case["findings"]):
        yield from _fields(finding, _FINDING, f"{where}.findings[{number}]")
    for number, timing in enumerate(case["timings"]):
        yield from _fields(timing, _TIMING, f"{where}.timings[{number}]")


def _fields(values: Any, kinds: dict[str, tuple[type, ...]], where: str) -> Iterator[str]:
    if not isinstance(values, dict):
        yield f"{where}: is no object"
        return
    if values.keys() != kinds.keys():
        odd = sorted(values.keys() ^ kinds.keys())
        yield f"{where}: fields {odd} are missing or unknown"
        return
    for name, kind in kinds.items():
        value = values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
            yield f"{where}.{name}: {value!r} is of the wrong type"
