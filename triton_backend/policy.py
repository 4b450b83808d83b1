"""How this server chooses who runs: values only, read by the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Prefill(Enum):
    """How prompts share executions with canvases.

    CHUNKED takes what canvases leave of the budget, a part of a prompt if need be. DEFICIT takes
    prompts whole, and saves up budget that is too small for the next one. FIRST runs prompts
    before canvases, as large as the engine takes them.
    """

    CHUNKED = "chunked"
    DEFICIT = "deficit"
    FIRST = "first"


@dataclass(frozen=True)
class Policy:
    """What `config.pbtxt` decides; times in seconds, sizes in tokens.

    `token_budget` 0 is the engine's limit. A request of priority p stands behind those of a lower
    one as if it had come p * `ageing_seconds` later, so it cannot be held back for ever.
    `queue_timeout` 0 lets requests wait as long as it takes. `fair` serves the tenant first that
    has had the fewest tokens. `strict` never starts a request before one that came earlier.
    With `slo_seconds`, generations get fewer denoising steps when that is what it takes to answer
    within so many seconds; 0 never does.
    """

    fusion: bool = True
    prefill: Prefill = Prefill.CHUNKED
    token_budget: int = 0
    ageing_seconds: float = 30.0
    queue_timeout: float = 0.0
    fair: bool = False
    strict: bool = True
    slo_seconds: float = 0.0
    check: bool = False

    def budget(self, most: int) -> int:
        """Tokens of one execution, where the engine takes so many at most."""
        return self.token_budget or most


LOOK_AHEAD = 16
"""Waiting requests without pages that others may pass in a step when order is not strict."""
