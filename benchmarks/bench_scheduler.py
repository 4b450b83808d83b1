"""Host time of one execution's decisions: schedule, pack and record, without an engine.

256 live requests at the released checkpoint's canvas: generations under way, reads, and new ones
waiting, with as many rows an execution as the engine is built for by default.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from triton_backend.accept import EntropyBound
from triton_backend.core import Canvas, Generation, Request, Segment, Step, StepResult
from triton_backend.counters import Counters
from triton_backend.denoise import CanvasState, Denoising
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import KvCache, KvShape
from triton_backend.pack import pack
from triton_backend.policy import Policy
from triton_backend.reading import Reading
from triton_backend.reads import ReadResult
from triton_backend.scheduler import Scheduler
from triton_backend.work import Work
from triton_backend.writing import Writing

LIVE, ROWS, CANVAS, PAGE, WINDOW = 256, 4096, 256, 64, 1024
VOCABULARY, CONTEXT, HIDDEN = 262_144, 8192, 8
LIMITS = StepLimits(ROWS, 256, 1024, CONTEXT)
GOALS = {"schedule": 200e-6, "pack": 300e-6}
"""Seconds, from the issue that asked for this; record has none."""

_DENOISING = Denoising(0, 48, 0.4, 0.8, EntropyBound(0.1), 1, 0.005)


def _request(key: int, rng: random.Random) -> Request:
    prompt = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(50, 1500)))
    if key % 4 == 0:
        canvas = Canvas((5,) * 32, (3, 7), ((1, 2), (3, 4)), 2)
        return Request(key, prompt, (canvas,))
    return Request(key, prompt, generation=Generation(1024, CANVAS, _DENOISING, frozenset()))


def _work(request: Request) -> Work:
    if request.generation is None:
        return Reading(request)
    return Writing(request, lambda ids, more=False: "", VOCABULARY, CONTEXT)  # noqa: ARG005


def _result(segment: Segment) -> ReadResult | CanvasState | None:
    """What an engine could have said; a canvas is done after some 20 steps."""
    if segment.state is not None:
        state, width = segment.state, len(segment.token_ids)
        zeros = np.zeros(width, np.float32)
        finished = state.steps >= 20
        return CanvasState(
            state.ids, state.pinned, state.steps + 1, (), state.ids, zeros, zeros,
            np.zeros((width, HIDDEN), np.float32), finished,
        )  # fmt: skip
    if segment.slots:
        none = np.zeros((len(segment.slots), 2), np.float32)
        row = none[:, 0]
        return ReadResult(none, none, row, row, row.astype(np.int32))
    return None


def measure(steps: int) -> dict[str, list[float]]:
    """Seconds of each part, execution by execution, once all prompts have been started."""
    rng = random.Random(0)
    kv = KvCache(KvShape(PAGE, WINDOW, 8192, 8192))
    scheduler = Scheduler(LIMITS, kv, Policy(), Counters(), _work)
    seconds: dict[str, list[float]] = {"schedule": [], "pack": [], "record": []}
    rows: list[int] = []
    key = 0
    for n in range(-steps, steps):
        while scheduler.num_running + scheduler.num_waiting < LIVE:
            scheduler.add(_request(key, rng), float(key))
            key += 1
        timed = seconds if n >= 0 else {name: [] for name in seconds}
        step = _timed(timed["schedule"], lambda: scheduler.schedule(0.0))
        _timed(timed["pack"], lambda: pack(step, PAGE))  # noqa: B023 - called at once
        result = StepResult(tuple(map(_result, step.segments)), 0.0, 0.0)
        _timed(timed["record"], lambda: scheduler.record(step, result))  # noqa: B023
        rows.append(sum(len(segment.token_ids) for segment in step.segments))
    print(f"rows of an execution: {statistics.median(rows[steps:]):.0f} of {ROWS}")
    print(f"live requests: {LIVE}, of them running {scheduler.num_running}")
    return seconds


def _timed(into: list[float], work: Callable[[], object]) -> Step:
    started = time.perf_counter()
    made = work()
    into.append(time.perf_counter() - started)
    return made  # type: ignore[return-value]


def main() -> int:
    """Prints medians beside their goals; 1 if one is missed."""
    seconds = measure(steps=150)
    table = Table("part", "median us", "P99 us", "goal us")
    missed = False
    for name, values in seconds.items():
        median, worst = statistics.median(values), sorted(values)[int(0.99 * len(values))]
        goal = GOALS.get(name)
        missed |= goal is not None and median > goal
        shown = "" if goal is None else f"{goal * 1e6:.0f}"
        table.add_row(name, f"{median * 1e6:.0f}", f"{worst * 1e6:.0f}", shown)
    Console().print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
