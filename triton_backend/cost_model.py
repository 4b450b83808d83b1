"""How long an execution takes, from its rows: curves fitted to measurements; standard library only.

All rows of a step go through the layers together, so one curve counts them all; rows of either
head cost extra, by a curve of their own. Every curve is flat or rises, and straight between its
points: executions on real hardware take a floor of time however few rows they have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plugins.spec import Phase
from triton_backend.core import Segment


class StepRows(NamedTuple):
    """Rows of one execution: of all phases, through each head, and the pairs of a row and a
    position before its segment (how far attention reaches back, summed over rows)."""

    rows: int
    denoised: int = 0
    read: int = 0
    pairs: int = 0


def rows_of(segments: Iterable[Segment]) -> StepRows:
    """What an execution of these segments is charged for."""
    rows = denoised = read = pairs = 0
    for segment in segments:
        count = len(segment.token_ids)
        rows += count
        pairs += count * segment.committed
        if segment.phase is Phase.DENOISE:
            read += len(segment.slots)
            denoised += 0 if segment.slots else count
    return StepRows(rows, denoised, read, pairs)


@dataclass(frozen=True)
class Curve:
    """Seconds by rows: straight between its points, level before the first, and on at the slope
    of the last two behind them. No points are no seconds."""

    points: tuple[tuple[int, float], ...] = ()

    @classmethod
    def fitted(cls, measured: Iterable[tuple[int, float]]) -> Curve:
        """The nearest curve to measured points that never falls (least squares)."""
        blocks: list[tuple[float, list[int]]] = []
        for rows, seconds in sorted(measured):
            mean, members = max(seconds, 0.0), [rows]
            # Neighbours that fall are taken together, at their mean.
            while blocks and blocks[-1][0] > mean:
                other, before = blocks.pop()
                weight = len(before) + len(members)
                mean = (other * len(before) + mean * len(members)) / weight
                members = before + members
            blocks.append((mean, members))
        return cls(tuple((rows, mean) for mean, members in blocks for rows in members))

    def __call__(self, rows: int) -> float:
        """Seconds of so many rows; 0 of none."""
        if not rows or not self.points:
            return 0.0
        index = bisect_left(self.points, (rows,))
        if index == 0 or len(self.points) == 1:
            return self.points[0][1]
        index = min(index, len(self.points) - 1)
        (low, before), (high, after) = self.points[index - 1], self.points[index]
        return before + (after - before) * (rows - low) / (high - low)


@dataclass(frozen=True)
class CostModel:
    """Seconds of an execution: `layers` by all rows, `denoise` and `read` by those of each head.

    `pair_seconds` is what a row pays for every position before its segment.
    """

    layers: Curve
    denoise: Curve = Curve()
    read: Curve = Curve()
    pair_seconds: float = 0.0
    _known: dict[tuple[int, int, int], float] = field(
        default_factory=dict, repr=False, compare=False
    )

    def seconds(self, step: StepRows) -> float:
        """How long an execution of these rows takes."""
        key = step[:3]
        if (known := self._known.get(key)) is None:
            known = self.layers(step.rows) + self.denoise(step.denoised) + self.read(step.read)
            if len(self._known) < _MOST_KNOWN:
                self._known[key] = known
        return known + self.pair_seconds * step.pairs

    def prefill_seconds(self, tokens: int, budget: int, start: int = 0) -> float:
        """How long a context takes alone, in executions of at most `budget` rows.

        `start` of its positions are there already.
        """
        seconds = 0.0
        for done in range(start, start + tokens, budget):
            rows = min(budget, start + tokens - done)
            seconds += self.seconds(StepRows(rows, pairs=rows * done))
        return seconds

    def largest_budget(self, seconds: float, most: int, context: int = 0) -> int:
        """The most rows, up to `most`, with which no execution takes longer; 0 if a row does.

        Whatever their mix of phases: as if all were canvases', each behind `context` positions.
        """

        def too_long(rows: int) -> bool:
            return self.seconds(StepRows(rows, denoised=rows, pairs=rows * context)) > seconds

        return bisect_left(range(1, most + 1), True, key=too_long)


_MOST_KNOWN = 1 << 16


def prefers_swap(
    held_bytes: int, copy_bytes_per_second: float | None, recompute_seconds: float
) -> bool:
    """Whether pages are better copied to the host and back than computed again.

    A bandwidth of None is one that was not measured: nothing is known to be gained.
    """
    if not copy_bytes_per_second:
        return False
    return 2 * held_bytes / copy_bytes_per_second < recompute_seconds


def relative_error(model: CostModel, measured: Sequence[tuple[StepRows, float]]) -> float:
    """The largest share by which the model misses a measured time."""
    return max((abs(model.seconds(rows) / found - 1) for rows, found in measured), default=0.0)
