"""Under load, how much denoising each request may still take: aggregate load control.

After DiLaServe (arXiv 2606.29094), section "aggregate load control", without its recompute term:
here a step costs a canvas's tokens and nothing else. Knows numbers, not requests or engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OPTIMISM = 0.7
"""A request is given up only if it misses its target even at this share of the estimate."""


@dataclass(frozen=True)
class Claim:
    """One running request: tokens it would still take at each effort, the most effort first.

    `hopeless` requests miss their target whatever they are given.
    """

    demands: tuple[float, ...]
    hopeless: bool = False


def demand(left: float, steps: float, canvas: int, commits: float) -> float:
    """Tokens still to compute: of the prompt, of denoising steps, of commits."""
    return left + canvas * (steps + commits)


def is_hopeless(seconds_left: float, fastest_step: float, least_steps: float) -> bool:
    """Whether a request cannot meet its target even at the least effort, estimates being rough."""
    return seconds_left <= OPTIMISM * fastest_step * least_steps


def caps(claims: Sequence[Claim], supply: float) -> list[int]:
    """The effort each request may take, as an index into its demands.

    `claims` come most progressed first. Each gets the most effort that still leaves everybody
    after it the least; when even the least of all exceeds the supply, everybody gets that.
    """
    behind = sum(claim.demands[-1] for claim in claims)
    used, chosen = 0.0, []
    for claim in claims:
        behind -= claim.demands[-1]
        least = len(claim.demands) - 1
        fitting = (n for n, tokens in enumerate(claim.demands) if used + tokens + behind <= supply)
        chosen.append(least if claim.hopeless else next(fitting, least))
        used += claim.demands[chosen[-1]]
    return chosen
