"""Alternating timing of several paths, so that a noisy machine is noisy for all of them alike."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable

from rich.progress import Progress


def alternate(
    paths: dict[str, Callable[[], object]], rounds: int, warmups: int = 2
) -> dict[str, list[float]]:
    """Seconds of every path, `rounds` each, one after the other in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    gc.disable()
    try:
        with Progress(transient=True) as progress:
            task = progress.add_task("measuring", total=(rounds + warmups) * len(paths))
            for round_number in range(-warmups, rounds):
                for name, path in paths.items():
                    start = time.perf_counter()
                    path()
                    if round_number >= 0:
                        seconds[name].append(time.perf_counter() - start)
                    progress.advance(task)
    finally:
        gc.enable()
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Median seconds of every path."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def emit(figure: str, value: float, **context: object) -> None:
    """One JSON line for one figure."""
    print(json.dumps({"figure": figure, "value": float(f"{value:.4g}"), **context}), flush=True)
