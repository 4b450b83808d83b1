"""The tables at the end of a GPU run, as plain lines; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.gpu_cases import Outcome, Timed
from benchmarks.gpu_document import Ceilings, Goal, ceilings_of, goals_of

_BAD = ("off", "failed", "crashed")


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines, their columns under each other; the first is the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def check_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row per case: its status, how many comparisons, the one nearest to its bound."""
    rows = [("case", "status", "compared", "nearest to its bound")]
    for outcome in outcomes:
        bounded = [f for f in outcome.findings if f.bound is not None]
        worst = max(bounded, key=lambda f: f.error / f.bound if f.bound else f.error, default=None)
        nearest = ""
        if worst is not None:
            nearest = f"{worst.error:.1e} of {worst.bound:.1e} ({worst.what})"
        if outcome.status != "ok":
            nearest = outcome.reason
        rows.append((outcome.name, outcome.status, str(len(outcome.findings)), nearest))
    yield from aligned(rows)


def bench_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row per timing, then a row per ratio, then what did not run and what is told in words."""
    ceilings = ceilings_of(outcomes)
    heading = ("work", "path", "graph ms", "eager ms", "GB/s", "of copy", "TFLOP/s", "of product")
    rows: list[Sequence[str]] = [(*heading, "tokens/s")]
    for outcome in outcomes:
        rows += [_row(timing, ceilings) for timing in outcome.timings]
    yield from aligned(rows)
    goals = goals_of(outcomes)
    if goals:
        yield ""
        yield from aligned([("ratio", "value", "asked", ""), *map(_goal, goals)])
    yield from _remarks(outcomes)


def _row(timing: Timed, ceilings: Ceilings | None) -> Sequence[str]:
    rates = ["", "", "", ""]
    if timing.bytes:
        speed = timing.bytes / timing.best / 1e6
        rates[:2] = f"{speed:.0f}", _share(speed, ceilings.copy if ceilings else None)
    if timing.flops:
        speed = timing.flops / timing.best / 1e9
        rates[2:] = f"{speed:.1f}", _share(speed, ceilings.matmul if ceilings else None)
    graph = "-" if timing.ms is None else f"{timing.ms:.3f}"
    tokens = f"{1e3 * timing.tokens / timing.best:.0f}" if timing.tokens else ""
    return (timing.group, timing.path, graph, f"{timing.eager_ms:.3f}", *rates, tokens)


def _share(value: float, of: float | None) -> str:
    return f"{value / of:.0%}" if of else ""


def _goal(goal: Goal) -> Sequence[str]:
    asked = "" if goal.least is None else f">= {goal.least}"
    asked = asked if goal.most is None else f"<= {goal.most}"
    verdict = ("met" if goal.met else "NOT MET") if asked else ""
    return goal.what, f"{goal.value:.2f}", asked, verdict


def _remarks(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What did not run or is out of bounds, what has no bound, what was not captured."""
    notes = []
    for outcome in outcomes:
        if outcome.status != "ok":
            notes.append(f"{outcome.status}: {outcome.name} ({outcome.reason})")
        loose = (f for f in outcome.findings if f.bound is None)
        notes += [f"told: {f.what}: {f.error:.2g}" for f in loose]
        noted = (t for t in outcome.timings if t.note)
        notes += [f"note: {t.group}, {t.path}: {t.note}" for t in noted]
    if notes:
        yield ""
        yield from notes


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """How many cases ended how, in a line."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
    ended = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(outcomes)} cases in {seconds:.0f} s: {ended}"


def good(outcomes: Sequence[Outcome]) -> bool:
    """Whether something ran, and nothing that ran went wrong."""
    ran = any(outcome.status == "ok" for outcome in outcomes)
    return ran and not any(outcome.status in _BAD for outcome in outcomes)
