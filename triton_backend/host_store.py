"""Pages of preempted requests in host memory: which slots hold what; owns no memory.

Only contexts are kept. A canvas's own state is with its request anyway, and a question's own part
of the prompt is short enough to be computed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_backend.core import Transfer
from triton_backend.kv_cache import KvCache, Need, Sequence
from triton_backend.page_pool import PagePool


@dataclass(frozen=True)
class Swapped:
    """A context of `computed` positions, its pages of both groups in slots of host memory.

    `sliding` holds those from page `first` on.
    """

    computed: int
    first: int
    full: tuple[int, ...]
    sliding: tuple[int, ...]


class HostStore:
    """Slots for pages of both groups; a slot is free again once its page has been brought back."""

    def __init__(self, full_slots: int, sliding_slots: int) -> None:
        self.full = PagePool(full_slots)
        self.sliding = PagePool(sliding_slots)
        self._returned: list[Swapped] = []

    def can(self, sequence: Sequence) -> bool:
        """Whether a sequence's pages would find room."""
        need = Need(len(sequence.full), len(sequence.sliding) - sequence.first)
        return self.full.can_allocate(need.full) and self.sliding.can_allocate(need.sliding)

    def save(self, sequence: Sequence) -> tuple[Swapped, list[Transfer]]:
        """Takes a sequence in, and what has to be copied before its pages are written again."""
        held = sequence.sliding[sequence.first :]
        full, sliding = self.full.allocate(len(sequence.full)), self.sliding.allocate(len(held))
        swapped = Swapped(sequence.computed, sequence.first, tuple(full), tuple(sliding))
        moves = [Transfer(False, *pair) for pair in zip(sequence.full, full, strict=True)]
        moves += [Transfer(True, *pair) for pair in zip(held, sliding, strict=True)]
        return swapped, moves

    def load(self, swapped: Swapped, sequence: Sequence, kv: KvCache) -> list[Transfer]:
        """Brings a context back into a sequence that may hold its beginning already.

        What has to be copied before the next execution; ask `kv.can_restore` first.
        """
        known = len(sequence.full)
        kv.restore(sequence, swapped.computed, swapped.first)
        moves = [
            Transfer(False, sequence.full[n], swapped.full[n])
            for n in range(known, len(sequence.full))
        ]
        moves += [
            Transfer(True, sequence.sliding[n], swapped.sliding[n - swapped.first])
            for n in range(max(known, swapped.first), len(sequence.sliding))
        ]
        self.retire(swapped)
        return moves

    def drop(self, swapped: Swapped) -> None:
        """Forgets a context that nobody will bring back."""
        self.full.release(swapped.full)
        self.sliding.release(swapped.sliding)

    def retire(self, swapped: Swapped) -> None:
        """Forgets a context after the step that is being made, whose copies its slots are in."""
        self._returned.append(swapped)

    def settle(self) -> None:
        """The copies of the last step are done: the slots that were in them are free."""
        for swapped in self._returned:
            self.drop(swapped)
        self._returned.clear()
