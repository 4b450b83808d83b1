"""Tells how a GPU run gets on: a bar where rich is installed, else a line per case."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.gpu_cases import Case, Outcome

Report = Callable[[int, Outcome], None]


@contextmanager
def progress(cases: Sequence[Case]) -> Iterator[Report]:
    """What to call with a case's number and outcome when it is done."""
    with _bar(cases) if _has_rich() else _lines(cases) as report:
        yield report


def _has_rich() -> bool:
    return sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


def line(number: int, count: int, outcome: Outcome, seconds: float) -> str:
    """One finished case; seconds are those of the run so far."""
    reason = f" ({outcome.reason})" if outcome.reason else ""
    took = f"{outcome.seconds:.1f} s" if outcome.seconds else "-"
    place = f"[{number + 1:>2}/{count}, {seconds:4.0f} s]"
    return f"{place} {outcome.name}: {outcome.status}, {took}{reason}"


@contextmanager
def _lines(cases: Sequence[Case]) -> Iterator[Report]:
    started = time.monotonic()

    def report(number: int, outcome: Outcome) -> None:
        text = line(number, len(cases), outcome, time.monotonic() - started)
        print(text, file=sys.stderr, flush=True)

    yield report


@contextmanager
def _bar(cases: Sequence[Case]) -> Iterator[Report]:
    # Only where it is installed: a machine with a GPU may have torch and little else.
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        names = [escape(case.name) for case in cases]
        task = bar.add_task(names[0] if names else "", total=len(cases))

        def report(number: int, outcome: Outcome) -> None:
            text = line(number, len(cases), outcome, time.monotonic() - started)
            bar.console.print(escape(text), highlight=False)
            following = names[number + 1] if number + 1 < len(names) else ""
            bar.update(task, advance=1, description=following)

        yield report
