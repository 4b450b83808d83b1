"""Many questions about one state: as one request, and as so many reads.

20 questions of 12 tokens over a state of 400 at the mid-size checkpoint, each a canvas of its own.
The separate reads run one after the other, with the prefix cache warm and without one.
Run: python -m benchmarks.bench_fanout
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.midsize import midsize_engine
from benchmarks.session import Policy, Session
from benchmarks.timing import alternate, emit, medians
from triton_backend.core import Canvas, Request

STATE, QUESTIONS, QUESTION, CANVAS = 400, 20, 12, 8
GOALS = {"separate, cache warm": 0.75, "separate, no cache": 0.2}
"""Seconds of one request over those of the separate reads, at most."""

REUSE = Policy(reuse=True)


def fan_out(vocabulary: int) -> Request:
    """One request with all questions."""
    drawn = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(drawn.randrange(10, vocabulary) for _ in range(count))

    canvases = tuple(
        Canvas(ids(CANVAS), (3,), ((5, 9),), 2, prompt_ids=ids(QUESTION)) for _ in range(QUESTIONS)
    )
    return Request(0, ids(STATE), canvases)


def separate(together: Request) -> list[Request]:
    """The same questions, each behind the whole prompt."""
    return [
        Request(n, together.prompt_ids + canvas.prompt_ids, (replace(canvas, prompt_ids=()),))
        for n, canvas in enumerate(together.canvases)
    ]


def check(session: Session, together: Request) -> float:
    """The largest difference of a question's log-probabilities from its lone answer's."""
    reads = session.serve([together])[0].reads
    worst = 0.0
    for n, request in enumerate(separate(together)):
        alone = session.serve([request])[n].reads[0]
        worst = max(worst, float(np.abs(alone.log_probs - reads[n].log_probs).max()))
    return worst


def main() -> int:
    """Prints seconds and ratios; 1 if one is missed or an answer differs."""
    session = Session(midsize_engine("float32"), pages=1024)
    together = fan_out(session.contract.geometry.vocab_size)
    lone = separate(together)
    worst = check(session, together)
    warm_one, warm_many = session.scheduler(REUSE), session.scheduler(REUSE)

    def one_by_one() -> None:
        for request in lone:
            session.serve([request])

    def one_by_one_warm() -> None:
        for request in lone:
            session.serve([request], scheduler=warm_many)

    seconds = medians(
        alternate(
            {
                "together, no cache": lambda: session.serve([together]),
                "together, cache warm": lambda: session.serve([together], scheduler=warm_one),
                "separate, no cache": one_by_one,
                "separate, cache warm": one_by_one_warm,
            },
            rounds=7,
            warmups=1,
        )
    )
    table = Table("path", "ms", "together / it", "goal")
    missed = worst > 1e-5
    for name, value in seconds.items():
        base = "together, cache warm" if name.endswith("warm") else "together, no cache"
        ratio, goal = seconds[base] / value, GOALS.get(name)
        emit("seconds", value, path=name)
        missed |= goal is not None and ratio > goal
        table.add_row(name, f"{value * 1e3:.1f}", f"{ratio:.3f}", str(goal or ""))
    Console().print(table)
    print(f"largest difference from lone answers: {worst:.1e} (at most 1e-5)")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
