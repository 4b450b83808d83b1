"""Times work on a GPU, launched one by one and replayed as a graph; knows no op.

Under the interpreter a wall clock stands in for it, whose numbers mean nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

Function = Callable[[], object]

WARM_UPS = 3
FLUSH_BYTES = 256 << 20
"""More than any GPU's second-level cache."""

_LEAST, _MOST = 5, 200


@dataclass(frozen=True)
class Reading:
    """Median milliseconds; those of a graph are None where it cannot be captured."""

    graph_ms: float | None
    eager_ms: float
    note: str = ""


class Clock(Protocol):
    """Measures functions that take nothing and may be called any number of times."""

    def measure(self, function: Function, flush: bool = True) -> Reading:
        """With `flush` the cache holds nothing of the work's when each repeat begins."""
        ...

    def eager(self, function: Function, repeats: int) -> float:
        """Median milliseconds by the wall clock, the device's work included; no warm-up."""
        ...


def repeats_of(milliseconds: float, seconds: float) -> int:
    """How often something is repeated to fill about so many seconds."""
    return max(_LEAST, min(_MOST, int(seconds * 1e3 / max(milliseconds, 1e-3))))


class CudaClock:
    """CUDA events on the current stream."""

    def __init__(self, device: torch.device, seconds: float = 0.3) -> None:
        self.device, self.seconds = device, seconds
        self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def measure(self, function: Function, flush: bool = True) -> Reading:
        for _ in range(WARM_UPS):
            function()
        torch.cuda.synchronize(self.device)
        eager = self._median(function, flush)
        try:
            graph = self._capture(function)
        except RuntimeError as error:
            # Raises again if the device is lost, not just the capture.
            torch.cuda.synchronize(self.device)
            return Reading(None, eager, f"not captured: {first_line(error)}")
        return Reading(self._median(graph.replay, flush), eager)

    def eager(self, function: Function, repeats: int) -> float:
        times = []
        for _ in range(repeats):
            torch.cuda.synchronize(self.device)
            start = time.perf_counter()
            function()
            torch.cuda.synchronize(self.device)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)

    def _capture(self, function: Function) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            function()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        with torch.cuda.graph(graph):
            function()
        graph.replay()
        torch.cuda.synchronize(self.device)
        return graph

    def _median(self, function: Function, flush: bool) -> float:
        first = self._times(function, flush, 2)[-1]
        return statistics.median(self._times(function, flush, repeats_of(first, self.seconds)))

    def _times(self, function: Function, flush: bool, repeats: int) -> list[float]:
        """Milliseconds of each repeat; all are queued before the first is waited for."""
        pairs = []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if flush:
                self._flushed.zero_()
            start.record()
            function()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) for start, end in pairs]


class WallClock:
    """One call, by the wall clock."""

    def measure(self, function: Function, flush: bool = True) -> Reading:  # noqa: ARG002
        return Reading(None, self.eager(function, 1))

    def eager(self, function: Function, repeats: int) -> float:  # noqa: ARG002
        start = time.perf_counter()
        function()
        return 1e3 * (time.perf_counter() - start)


def first_line(error: BaseException) -> str:
    """An error in a line, its type first."""
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0][:200]}"
