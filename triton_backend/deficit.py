"""A token budget for units that cannot be split: what the queue's head is too long for is saved up.

The deficit token-budget rule of Sangam (arXiv 2607.04206), whose "deficit" is a saved surplus.
Knows lengths, not requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class DeficitBudget:
    """Decides, step by step, how many of the waiting units join the units that run anyway."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.deficit = 0

    def admit(
        self, running: int, waiting: Iterable[int], has_pages: Callable[[int], bool]
    ) -> list[int]:
        """The lengths admitted now, a prefix of `waiting`: nobody is overtaken.

        `running` are the tokens of units that run in this step in any case; `has_pages` tells
        whether memory for one more unit, of this length, is there, and is asked in order.
        """
        base = self._tokens - running
        budget = base + self.deficit
        admitted: list[int] = []
        blocked = False
        for length in waiting:
            blocked = True
            # However long, a unit alone in an empty step must run, or it never would.
            alone = not running and not admitted
            if sum(admitted) + length > budget and not alone:
                break
            if not has_pages(length):
                self._spend(sum(admitted) - base)
                return admitted
            admitted.append(length)
            blocked = False
        # What an empty queue leaves over is not saved.
        self.deficit = max(0, budget - sum(admitted)) if blocked or admitted else 0
        return admitted

    def _spend(self, beyond: int) -> None:
        """A stop for want of memory banks nothing: waiting for pages is no claim on tokens."""
        self.deficit = max(0, self.deficit - max(0, beyond))
