"""Finds pages for whoever goes on next: free ones, the cache's, or those of whoever can wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from triton_backend.counters import Counters
from triton_backend.host_store import HostStore
from triton_backend.kv_cache import KvCache, Need, Pages, Sequence
from triton_backend.needs import claim, pages_held, total
from triton_backend.page_pool import pages_for
from triton_backend.progress import Progress
from triton_backend.running import Running
from triton_backend.step_builder import StepBuilder
from triton_backend.waiting import WaitingQueue


@dataclass(frozen=True)
class Swapping:
    """Host memory for preempted contexts, and when it is worth more than computing one anew."""

    host: HostStore = field(default_factory=lambda: HostStore(0, 0))
    prefers: Callable[[Sequence], bool] = lambda _: True


class Paging:
    """Starts and preempts requests for the step that is being made; who is in it already stays."""

    def __init__(
        self,
        kv: KvCache,
        running: Running,
        waiting: WaitingQueue,
        counters: Counters,
        budget: int,
        swapping: Swapping,
    ) -> None:
        self._kv, self._running, self._waiting = kv, running, waiting
        self._counters, self._budget = counters, budget
        self._host, self._swaps = swapping.host, swapping.prefers

    def start(self, progress: Progress, made: StepBuilder, now: float) -> bool:
        """Lets a waiting request run if the pages for its context, and those that running ones
        have yet to take, are there; requests of a lower priority make room for it."""
        sequence = self._kv.open(progress.work.context_ids, progress.request.salt)
        progress.sequence = sequence
        fits = self._has_claims(progress) or self._make_room(progress, made)
        if not (fits and self._bring_back(progress, made)):
            progress.drop(self._kv)
            self._waiting.hold_back(progress, now)
            return False
        self._waiting.take(progress, now)
        self._running.add(progress)
        progress.cached_tokens += sequence.computed
        self._counters.count_prefix(sequence.computed, len(progress.work.context_ids))
        return True

    def tokens(self, progress: Progress, wanted: int, made: StepBuilder) -> int:
        """How many of the wanted positions a context gets pages for; it has them then."""
        sequence, least = progress.context, min(wanted, self._kv.shape.page_size)
        while (room := self._kv.room(sequence)) < least:
            if not self._preempt_behind(progress, made):
                break
        tokens = max(min(wanted, room), 0)
        self._kv.extend(sequence, tokens)
        return tokens

    def branch_tokens(
        self, progress: Progress, canvas: int, wanted: int, made: StepBuilder
    ) -> bool:
        """Whether a branch gets pages for the wanted positions; it has them then."""
        branch = progress.branch(canvas, self._kv)
        if not self._secure(progress, self._kv.needs(branch, wanted), made):
            return False
        self._kv.extend(branch, wanted)
        return True

    def scratch(self, progress: Progress, width: int, made: StepBuilder) -> Pages | None:
        """Pages for one step of a canvas, or None."""
        count = pages_for(width, self._kv.shape.page_size)
        if not self._secure(progress, Need(count, count), made):
            return None
        return self._kv.scratch(width)

    def _has_claims(self, progress: Progress) -> bool:
        """Whether what a request will take, and what running ones will, is all to be had."""
        if not self._running:
            return True
        claims = [claim(one, self._kv, self._budget) for one in (progress, *self._running)]
        return self._kv.can(total(claims))

    def _make_room(self, progress: Progress, made: StepBuilder) -> bool:
        """Preempts requests of a lower priority, the worst rank first, if that is of use."""
        victims = [
            other
            for other in self._running
            if progress < other
            and other.request.priority > progress.request.priority
            and other.request.key not in made.keys
        ]
        claims = [claim(progress, self._kv, self._budget)]
        claims += [
            claim(other, self._kv, self._budget) for other in self._running if other not in victims
        ]
        wanted, freed = total(claims), total(map(pages_held, victims))
        if not self._kv.can(Need(wanted.full - freed.full, wanted.sliding - freed.sliding)):
            return False
        while victims and not self._has_claims(progress):
            self._preempt(victims.pop(), made)
        return self._has_claims(progress)

    def _secure(self, progress: Progress, need: Need, made: StepBuilder) -> bool:
        while not self._kv.can(need):
            if not self._preempt_behind(progress, made):
                return False
        return True

    def _preempt_behind(self, progress: Progress, made: StepBuilder) -> bool:
        victim = self._running.worst(progress, made.keys)
        if victim is None:
            return False
        self._preempt(victim, made)
        return True

    def _preempt(self, victim: Progress, made: StepBuilder) -> None:
        self._running.remove(victim)
        sequence = victim.context
        # What is being brought back by this very step is not there to be saved yet.
        idle = victim not in made.loaded
        if idle and self._host.can(sequence) and self._swaps(sequence):
            victim.swapped, moves = self._host.save(sequence)
            made.saves += moves
            self._counters.swapped_pages += len(moves)
        victim.drop(self._kv)
        victim.preemptions += 1
        self._counters.preemptions += 1
        self._waiting.add(victim)

    def _bring_back(self, progress: Progress, made: StepBuilder) -> bool:
        """Loads a swapped context, if there is one; False if its pages are not to be had."""
        swapped, sequence = progress.swapped, progress.context
        if swapped is None:
            return True
        if swapped.computed > sequence.computed:
            if not self._kv.can(self._kv.needs(sequence, swapped.computed - sequence.computed)):
                return False
            made.loads += self._host.load(swapped, sequence, self._kv)
            made.loaded.append(progress)
        else:
            self._host.drop(swapped)
        progress.swapped = None
        return True
