"""Which plan serves how many rows, where a compiled program must serve any number; no torch.

A program holds the launches of every tier. The grid of one that does not serve the rows at hand is
empty, and an empty grid is not launched, so the program chooses without being told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from plugins.gpu.device import Gpu

P = TypeVar("P")


@dataclass(frozen=True)
class Build:
    """What a program is compiled for: the GPU, the most rows of a call, and the positions that a
    table row can hold at most.
    """

    gpu: Gpu
    rows: int
    positions: int


@dataclass(frozen=True)
class Tier(Generic[P]):
    """`plan` serves `first` to `last` rows; a last tier has no end."""

    plan: P
    first: int
    last: int | None = None


def tiers(plan_of: Callable[[int], P], most: int) -> tuple[Tier[P], ...]:
    """Every plan that 1 to `most` rows choose, in order; more rows than that share the last."""
    found: list[Tier[P]] = []
    for rows in range(1, most + 1):
        plan = plan_of(rows)
        if not found or plan != found[-1].plan:
            if found:
                found[-1] = Tier(found[-1].plan, found[-1].first, rows - 1)
            found.append(Tier(plan, rows))
    return tuple(found)
