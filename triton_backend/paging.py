"""Finds pages for whoever goes on next: free ones, the cache's, or those of whoever can wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from triton_backend.claims import Claims
from triton_backend.counters import Counters
from triton_backend.host_store import HostStore
from triton_backend.kv_cache import KvCache, Need, Pages, Sequence
from triton_backend.needs import freed
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
        self._counters, self._claims = counters, Claims(kv, budget)
        self._host, self._swaps = swapping.host, swapping.prefers

    def begin(self) -> None:
        """A new step is being made."""
        self._claims.forget()

    def tokens_left(self, progress: Progress) -> int:
        """Tokens of a request's next canvas and of all that must be computed before it.

        What is kept for a waiting one, by the prefix cache or in host memory, need not be.
        """
        if progress.is_running:
            return progress.tokens_left
        saved = progress.swapped.computed if progress.swapped else 0
        known = self._kv.known(progress.work.context_ids, progress.request.salt)
        return progress.tokens_left - max(saved, known)

    def start(self, progress: Progress, made: StepBuilder, now: float) -> bool:
        """Lets a waiting request run if the pages for its context, and those that running ones
        have yet to take, are there; requests of a lower priority make room for it."""
        sequence = self._kv.open(progress.work.context_ids, progress.request.salt)
        progress.sequence = sequence
        cached = sequence.computed
        fits = self._has_claims(progress) or self._make_room(progress, made)
        if not (fits and self._bring_back(progress, made)):
            progress.drop(self._kv)
            self._waiting.hold_back(progress, now)
            return False
        self._waiting.start(progress, now)
        self._running.add(progress)
        self._claims.put(progress)
        progress.cached_tokens += cached
        # What comes back from the host is neither known to the cache nor computed.
        self._counters.count_prefix(cached, cached + progress.remaining)
        return True

    def put_first(self, made: StepBuilder) -> None:
        """Gives the best rank the page that it goes on to, while those behind it can still be
        preempted: once their canvases are in the step, its prompt would have to wait for them."""
        first, size = next(iter(self._running), None), self._kv.shape.page_size
        if first is None:
            return
        if first.remaining:
            self.tokens(first, min(first.remaining, size), made)
        elif own := first.own_left(canvas := next(first.work.pending())):
            self.branch_tokens(first, canvas, min(own, size), made)

    def tokens(self, progress: Progress, wanted: int, made: StepBuilder) -> int:
        """How many of the wanted positions a context gets pages for; it has them then."""
        return self._grow(progress, progress.context, wanted, made)

    def branch_tokens(self, progress: Progress, canvas: int, wanted: int, made: StepBuilder) -> int:
        """The same for the part of the prompt that belongs to a canvas alone."""
        return self._grow(progress, progress.branch(canvas, self._kv), wanted, made)

    def scratch(self, progress: Progress, width: int, made: StepBuilder) -> Pages | None:
        """Pages for one step of a canvas, or None."""
        count = pages_for(width, self._kv.shape.page_size)
        while not self._kv.can(Need(count, count)):
            if not self._preempt_behind(progress, made):
                return None
        return self._kv.scratch(width)

    def _grow(self, progress: Progress, sequence: Sequence, wanted: int, made: StepBuilder) -> int:
        least = min(wanted, self._kv.shape.page_size)
        while (room := self._kv.room(sequence)) < least:
            if not self._preempt_behind(progress, made):
                break
        tokens = max(min(wanted, room), 0)
        self._kv.extend(sequence, tokens)
        self._claims.put(progress)
        return tokens

    def _has_claims(self, progress: Progress) -> bool:
        """Whether what a request will take, and what running ones will, is all to be had."""
        if not self._running:
            return True
        self._claims.ask(self._running)
        return self._kv.can(self._claims.total.more(self._claims.of(progress)))

    def _make_room(self, progress: Progress, made: StepBuilder) -> bool:
        """Preempts requests of a lower priority, the worst rank first, if that is of use."""
        victims = [
            other
            for other in self._running
            if progress < other
            and other.request.priority > progress.request.priority
            and other.request.key not in made.keys
        ]
        if not victims:
            return False
        least = self._claims.total.more(self._claims.of(progress)).less(freed(victims, self._kv))
        for victim in victims:
            least = least.less(self._claims.of(victim))
        if not self._kv.can(least):
            return False
        while not self._has_claims(progress):
            self._preempt(victims.pop(), made)
        return True

    def _preempt_behind(self, progress: Progress, made: StepBuilder) -> bool:
        victim = self._running.worst(progress, made.keys)
        if victim is None:
            return False
        self._preempt(victim, made)
        return True

    def _preempt(self, victim: Progress, made: StepBuilder) -> None:
        self._running.remove(victim)
        self._claims.drop(victim)
        sequence = victim.context
        if self._host.can(sequence) and self._swaps(sequence):
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
            if not self._kv.can_restore(sequence, swapped.computed, swapped.first):
                return False
            made.load(progress, self._host.load(swapped, sequence, self._kv))
        else:
            self._host.retire(swapped)
        progress.swapped = None
        return True
