"""Finds pages for whoever goes on next: free ones, the cache's, or those of whoever can wait."""

from __future__ import annotations

from collections.abc import Collection

from triton_backend.counters import Counters
from triton_backend.kv_cache import KvCache, Need, Pages
from triton_backend.needs import claim, pages_held, total
from triton_backend.page_pool import pages_for
from triton_backend.progress import Progress
from triton_backend.running import Running
from triton_backend.waiting import WaitingQueue


class Paging:
    """Starts and preempts requests; `spared` keys are in the step being filled, they stay."""

    def __init__(
        self, kv: KvCache, running: Running, waiting: WaitingQueue, counters: Counters, budget: int
    ) -> None:
        self._kv, self._running, self._waiting = kv, running, waiting
        self._counters, self._budget = counters, budget

    def start(self, progress: Progress, spared: Collection[int], now: float) -> bool:
        """Lets a waiting request run if the pages for its context, and those that running ones
        have yet to take, are there; requests of a lower priority make room for it."""
        sequence = self._kv.open(progress.work.context_ids, progress.request.salt)
        progress.sequence = sequence
        if not self._has_claims(progress) and not self._make_room(progress, spared):
            progress.drop(self._kv)
            self._waiting.hold_back(progress, now)
            return False
        self._waiting.take(progress, now)
        self._running.add(progress)
        progress.cached_tokens += sequence.computed
        self._counters.count_prefix(sequence.computed, len(progress.work.context_ids))
        return True

    def tokens(self, progress: Progress, wanted: int, spared: Collection[int]) -> int:
        """How many of the wanted positions a context gets pages for; it has them then."""
        sequence, least = progress.context, min(wanted, self._kv.shape.page_size)
        while (room := self._kv.room(sequence)) < least:
            if not self._preempt_behind(progress, spared):
                break
        tokens = max(min(wanted, room), 0)
        self._kv.extend(sequence, tokens)
        return tokens

    def branch_tokens(
        self, progress: Progress, canvas: int, wanted: int, spared: Collection[int]
    ) -> bool:
        """Whether a branch gets pages for the wanted positions; it has them then."""
        branch = progress.branch(canvas, self._kv)
        if not self._secure(progress, self._kv.needs(branch, wanted), spared):
            return False
        self._kv.extend(branch, wanted)
        return True

    def scratch(self, progress: Progress, width: int, spared: Collection[int]) -> Pages | None:
        """Pages for one step of a canvas, or None."""
        count = pages_for(width, self._kv.shape.page_size)
        if not self._secure(progress, Need(count, count), spared):
            return None
        return self._kv.scratch(width)

    def _has_claims(self, progress: Progress) -> bool:
        """Whether what a request will take, and what running ones will, is all to be had."""
        if not self._running:
            return True
        claims = [claim(one, self._kv, self._budget) for one in (progress, *self._running)]
        return self._kv.can(total(claims))

    def _make_room(self, progress: Progress, spared: Collection[int]) -> bool:
        """Preempts requests of a lower priority, the worst rank first, if that is of use."""
        victims = [
            other
            for other in self._running
            if progress < other
            and other.request.priority > progress.request.priority
            and other.request.key not in spared
        ]
        claims = [claim(progress, self._kv, self._budget)]
        claims += [
            claim(other, self._kv, self._budget) for other in self._running if other not in victims
        ]
        wanted, freed = total(claims), total(map(pages_held, victims))
        if not self._kv.can(Need(wanted.full - freed.full, wanted.sliding - freed.sliding)):
            return False
        while victims and not self._has_claims(progress):
            self._preempt(victims.pop())
        return self._has_claims(progress)

    def _secure(self, progress: Progress, need: Need, spared: Collection[int]) -> bool:
        while not self._kv.can(need):
            if not self._preempt_behind(progress, spared):
                return False
        return True

    def _preempt_behind(self, progress: Progress, spared: Collection[int]) -> bool:
        victim = self._running.worst(progress, spared)
        if victim is None:
            return False
        self._preempt(victim)
        return True

    def _preempt(self, victim: Progress) -> None:
        self._running.remove(victim)
        victim.drop(self._kv)
        victim.preemptions += 1
        self._counters.preemptions += 1
        self._waiting.add(victim)
