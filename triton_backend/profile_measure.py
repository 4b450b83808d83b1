"""Times an engine's executions on this machine and fits the cost model to them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from build_engine.contract import EngineContract
from triton_backend.core import Step, Transfer
from triton_backend.cost_model import CostModel, Curve, StepRows, relative_error
from triton_backend.execute import run
from triton_backend.profile_steps import Rows, StepMaker
from triton_backend.runner import Runner

Clock = Callable[[], float]
Execute = Callable[[Step], object]
Timed = Sequence[tuple[Rows, float]]
"""Median seconds of executions."""

_LEAST_ROWS = 8
_MOST_REPEATS = 25
_COPIED_PAGES = 64


@dataclass(frozen=True)
class Measured:
    """Median seconds of every execution that was timed, and the model fitted to them.

    `miss` is the largest share by which it misses a mix of phases, which it was not fitted to.
    """

    times: Timed
    mixes: Timed
    cost: CostModel
    miss: float


def grid(maker: StepMaker, most: int) -> list[Rows]:
    """What is timed for the fit: twice the rows again and again, of each phase alone, then some of
    them behind a context."""
    counts = []
    rows = _LEAST_ROWS
    while rows < most:
        counts.append(rows)
        rows *= 2
    counts.append(most)
    alone = [
        Rows(**{phase: count})
        for phase in ("prefill", "commit", "denoise", "read")
        for count in counts
    ]
    behind = [
        Rows(prefill=count, context=context)
        for count in counts[-4:-1:2]
        for context in (maker.longest // 8, maker.longest // 2)
    ]
    return [one for one in [*alone, *behind] if maker.fits(one)]


def mixes(maker: StepMaker, most: int) -> list[Rows]:
    """Executions of more than one phase, to judge the fit by."""
    width = maker.canvas
    wanted = [
        Rows(prefill=most - width, denoise=width),
        Rows(prefill=most // 2, denoise=most // 2),
        Rows(prefill=most // 4, commit=width, denoise=most // 4, read=width),
    ]
    return [one for one in wanted if maker.fits(one) and min(one.prefill, one.denoise) > 0]


def measure(
    maker: StepMaker,
    execute: Execute,
    most: int,
    seconds: float,
    report: Callable[[str], None],
    clock: Clock = time.perf_counter,
) -> Measured:
    """Times executions of up to `most` rows, for about so many seconds in all."""
    fitted, judged = grid(maker, most), mixes(maker, most)
    share = seconds / (len(fitted) + len(judged))
    times: list[tuple[Rows, float]] = []
    for number, rows in enumerate([*fitted, *judged], 1):
        found = _time(partial(execute, maker.make(rows)), share, clock)
        times.append((rows, found))
        report(f"[{number}/{len(fitted) + len(judged)}] {named(rows)}: {found * 1e3:.2f} ms")
    cost = fit(maker, times[: len(fitted)])
    mixed = times[len(fitted) :]
    charged = [(charge(maker, rows), found) for rows, found in mixed]
    return Measured(times[: len(fitted)], mixed, cost, relative_error(cost, charged))


def _time(action: Callable[[], object], share: float, clock: Clock) -> float:
    """The median of several runs behind one that does not count, in about `share` seconds; where
    one takes longer than that, its own time."""
    began = clock()
    action()
    first = clock() - began
    found = [first] if first > share else []
    while not found or (len(found) < _MOST_REPEATS and clock() - began < share):
        before = clock()
        action()
        found.append(clock() - before)
    return median(found)


def charge(maker: StepMaker, rows: Rows) -> StepRows:
    """What the cost model asks of an execution."""
    return StepRows(rows.total, rows.denoise, maker.read_rows(rows), rows.total * rows.context)


def fit(maker: StepMaker, times: Timed) -> CostModel:
    """The layers' curve from context rows, the heads' from what their rows take beyond it."""
    encoded = [(rows, found) for rows, found in times if not (rows.denoise or rows.read)]
    by_rows: dict[int, list[float]] = {}
    for rows, found in encoded:
        if not rows.context:
            by_rows.setdefault(rows.total, []).append(found)
    layers = Curve.fitted((count, sum(found) / len(found)) for count, found in by_rows.items())
    denoise = Curve.fitted(
        (rows.denoise, found - layers(rows.total)) for rows, found in times if rows.denoise
    )
    read: dict[int, float] = {}
    for rows, found in times:
        if rows.read:
            beyond, slots = found - layers(rows.total), maker.read_rows(rows)
            read[slots] = max(read.get(slots, 0.0), beyond)
    pairs = [
        (rows.total * rows.context, found - layers(rows.total))
        for rows, found in encoded
        if rows.context
    ]
    weight = sum(pair * pair for pair, _ in pairs)
    slope = sum(pair * beyond for pair, beyond in pairs) / weight if weight else 0.0
    return CostModel(layers, denoise, Curve.fitted(read.items()), max(slope, 0.0))


def pages_wanted(maker: StepMaker, most: int) -> int:
    """Pages of each group that the largest of all executions takes."""
    return max(
        _COPIED_PAGES, *(maker.pages(rows) for rows in [*grid(maker, most), *mixes(maker, most)])
    )


def copy_rate(runner: Runner, contract: EngineContract, clock: Clock = time.perf_counter) -> float:
    """Bytes a second of pages to host memory and back, both counted."""
    runner.create_host_pools(_COPIED_PAGES, _COPIED_PAGES)
    groups = [group for group in (False, True) if contract.group_page_bytes(group)]
    moves = [Transfer(group, n, n) for group in groups for n in range(_COPIED_PAGES)]
    moved = sum(contract.group_page_bytes(move.sliding) for move in moves)
    taken = _time(lambda: runner.move(moves, moves), 1.0, clock)
    return 2 * moved / taken


def executed_by(runner: Runner) -> Execute:
    """A whole execution as the engine loop sees it: packing, the engine, what follows."""
    return lambda step: run(runner, step)


def named(rows: Rows) -> str:
    """A step in words: its rows by phase."""
    kinds = ("prefill", "commit", "denoise", "read")
    parts = [f"{getattr(rows, kind)} {kind}" for kind in kinds if getattr(rows, kind)]
    behind = f" behind {rows.context}" if rows.context else ""
    return " + ".join(parts) + " rows" + behind


def table(measured: Measured) -> Iterator[str]:
    """Lines of the table that is printed: milliseconds by rows and phase."""
    kinds = ("prefill", "commit", "denoise", "read")
    found = dict(measured.times)
    yield "  rows " + "".join(f"{kind:>12}" for kind in kinds) + "   (median ms)"
    for count in sorted({rows.total for rows, _ in measured.times if not rows.context}):
        cells = (found.get(Rows(**{kind: count})) for kind in kinds)
        yield f"{count:6} " + "".join(_cell(seconds) for seconds in cells)
    for rows, seconds in measured.times:
        if rows.context:
            yield f"{named(rows)}: {seconds * 1e3:.2f} ms"
    for rows, seconds in measured.mixes:
        yield f"{named(rows)}: {seconds * 1e3:.2f} ms"
    yield f"the model misses a mix by at most {measured.miss:.0%}"


def _cell(seconds: float | None) -> str:
    return f"{'-' if seconds is None else f'{seconds * 1e3:.2f}':>12}"


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """This machine in words: its processor and how many there are for this process."""
    name = platform.processor() or platform.machine()
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {len(os.sched_getaffinity(0))} CPUs"
