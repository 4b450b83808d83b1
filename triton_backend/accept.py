"""Which positions of a canvas keep their candidate: one small rule each, statistics in, mask out.

A rule is a frozen dataclass with `accept`; whatever fits `AcceptRule` can be served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What one denoising step knows of the W positions that are still open."""

    entropy: Reals  # [W], nats of the temperature-scaled distribution
    confidence: Reals  # [W], probability of the candidate there; at temperature 1 if greedy


class AcceptRule(Protocol):
    """Decides from one step's statistics alone; acceptance starts anew each step."""

    def accept(self, statistics: Statistics) -> Mask:
        """Mask [W] of accepted positions, at least one of them true."""
        ...

    def eased(self, effort: float) -> AcceptRule:
        """The rule for a share of the steps: it accepts as much at a time as that needs."""
        ...


@dataclass(frozen=True)
class EntropyBound:
    """The checkpoint's own rule: ascending entropies while the sum of those before stays in bound.

    Source: transformers' EntropyBoundSampler, after arXiv 2505.24857.
    """

    bound: float

    def accept(self, statistics: Statistics) -> Mask:
        order = np.argsort(statistics.entropy, kind="stable")
        ascending = statistics.entropy[order]
        # Summed in double and rounded to the entropies' type, as torch.cumsum does.
        total = np.cumsum(ascending, dtype=np.float64).astype(ascending.dtype)
        accepted = np.zeros(len(order), np.bool_)
        accepted[order] = total - ascending <= ascending.dtype.type(self.bound)
        return accepted

    def eased(self, effort: float) -> EntropyBound:
        return EntropyBound(self.bound / effort)


@dataclass(frozen=True)
class ConfidenceThreshold:
    """Every candidate of at least this probability, and always the most confident one.

    Source: Fast-dLLM, arXiv 2505.22618.
    """

    threshold: float

    def accept(self, statistics: Statistics) -> Mask:
        accepted = statistics.confidence >= self.threshold
        accepted[np.argmax(statistics.confidence)] = True
        return accepted

    def eased(self, effort: float) -> ConfidenceThreshold:
        return ConfidenceThreshold(self.threshold * effort)


@dataclass(frozen=True)
class ConfidenceFactor:
    """The longest run of confidences c1 >= c2 >= ... with (j + 1)(1 - c_j) <= factor; c1 is free.

    Source: Fast-dLLM, arXiv 2505.22618.
    """

    factor: float

    def accept(self, statistics: Statistics) -> Mask:
        order = np.argsort(-statistics.confidence, kind="stable")
        rank = np.arange(1, len(order) + 1)
        within = (rank + 1) * (1 - statistics.confidence[order]) <= self.factor
        within[0] = True
        accepted = np.zeros(len(order), np.bool_)
        accepted[order] = np.logical_and.accumulate(within)
        return accepted

    def eased(self, effort: float) -> ConfidenceFactor:
        return ConfidenceFactor(self.factor / effort)
