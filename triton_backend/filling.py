"""Fills one execution by the policy: canvases, commits, prompts of running requests, new ones."""

from __future__ import annotations

from collections.abc import Iterator

from triton_backend.core import SplitReason
from triton_backend.deficit import DeficitBudget
from triton_backend.fusion import Room, StepLimits, split_reason
from triton_backend.paging import Paging
from triton_backend.policy import LOOK_AHEAD, Policy, Prefill
from triton_backend.progress import Progress
from triton_backend.running import Running
from triton_backend.step_builder import StepBuilder
from triton_backend.waiting import WaitingQueue
from triton_backend.work import CanvasPart


class Filling:
    """Makes one step after the other; what it saves for the next is the deficit budget's."""

    def __init__(
        self,
        limits: StepLimits,
        policy: Policy,
        running: Running,
        waiting: WaitingQueue,
        paging: Paging,
    ) -> None:
        self._limits, self._policy = limits, policy
        self._running, self._waiting, self._paging = running, waiting, paging
        self._budget = policy.budget(limits.max_tokens)
        self._deficit = DeficitBudget(self._budget)
        self._made = StepBuilder(Room.of(limits))

    def fill(self, now: float) -> StepBuilder:
        """The next execution; the requests in it have their pages."""
        prefill = self._policy.prefill
        chunked = prefill is Prefill.CHUNKED
        tokens = self._budget if chunked else self._limits.max_tokens
        self._made = StepBuilder(Room.of(self._limits, tokens))
        self._paging.begin()
        self._urgent(now)
        self._paging.put_first(self._made)
        if prefill is Prefill.FIRST:
            self._prompts(now)
        self._canvases()
        if prefill is Prefill.CHUNKED:
            self._prompts(now)
        elif prefill is Prefill.DEFICIT:
            self._whole_prompts(now)
        return self._made

    def _urgent(self, now: float) -> None:
        """Starts who may take the pages of running requests, before those are in the step."""
        for progress in self._waiting:
            lowest = max((other.request.priority for other in self._running), default=None)
            if lowest is None or progress.request.priority >= lowest:
                return
            if not self._paging.start(progress, self._made, now):
                return

    def _canvases(self) -> None:
        """Canvases whose context is there, by rank, until one does not fit."""
        for progress in self._running:
            if not progress.is_running or progress.remaining:
                continue
            for index in self._pending(progress):
                if progress.own_left(index):
                    continue
                part = progress.work.part(index)
                if not self._made.room.fits(len(part.token_ids), len(part.slots)):
                    return
                if not self._add_canvas(progress, index, part):
                    return

    def _prompts(self, now: float) -> None:
        for progress in self._growing():
            if not self._made.room.fits(1):
                return
            if progress.is_running:
                self._extend(progress)
        for progress in self._starting(now):
            self._extend(progress)

    def _whole_prompts(self, now: float) -> None:
        """Prompts as units that are not divided, unless the engine takes no more at once."""
        growing, starting = [], self._starting(now)
        for progress in self._growing():
            # A commit before it may have taken its pages.
            if progress.is_running and progress.commits:
                self._extend(progress)
            elif progress.is_running:
                growing.append(progress)
        units = [*growing, *self._waiting]

        def runs(_: int) -> bool:
            progress = growing.pop(0) if growing else next(starting, None)
            before = len(self._made.segments)
            if progress is not None and progress.is_running:
                self._extend(progress)
            return len(self._made.segments) > before

        most = self._limits.max_tokens
        lengths = (min(self._paging.tokens_left(progress), most) for progress in units)
        self._deficit.admit(self._made.tokens, lengths, runs)

    def _growing(self) -> list[Progress]:
        """Running requests with tokens of their context or of branches to compute."""
        growing = [progress for progress in self._running if progress.grows]
        return sorted(growing, key=lambda progress: not progress.commits)

    def _starting(self, now: float) -> Iterator[Progress]:
        """Starts waiting requests while there are room and pages, and yields each."""
        passed: list[Progress] = []
        for progress in self._waiting:
            if not self._made.room.fits(1) or len(passed) >= LOOK_AHEAD:
                return
            # Whoever could be preempted by one that was passed would only start in vain.
            if any(progress.request.priority > other.request.priority for other in passed):
                continue
            if self._paging.start(progress, self._made, now):
                yield progress
            elif self._policy.strict or now - progress.arrived > self._policy.ageing_seconds:
                return
            else:
                passed.append(progress)

    def _extend(self, progress: Progress) -> None:
        """The next chunk of a context and, when it is the last, the canvases that may join it."""
        chunk = min(progress.remaining, self._made.room.tokens)
        if progress.remaining and not self._made.room.fits(1):
            return
        if chunk:
            chunk = self._paging.tokens(progress, chunk, self._made)
            if not chunk:
                return
            self._made.add(progress.context_segment(chunk))
        if progress.remaining > chunk:
            return
        positions = len(progress.work.context_ids)
        for index in self._pending(progress):
            part = progress.work.part(index)
            reason = self._join(progress, index, part, positions, chunk > 0)
            if reason is not None:
                # Without a context there is nothing to be split from: the canvas just runs later.
                self._made.splits += [(progress.request.key, reason)] if chunk else []
                return
            positions += len(part.token_ids)

    def _pending(self, progress: Progress) -> Iterator[int]:
        return self._made.without(progress.request.key, progress.work.pending())

    def _join(
        self, progress: Progress, index: int, part: CanvasPart, positions: int, fused: bool
    ) -> SplitReason | None:
        """Adds a canvas, its own part of the prompt before it; why not, if it does not fit."""
        own, room = progress.own_left(index), self._made.room
        enabled = self._policy.fusion or not (fused or own)
        reason = split_reason(part, own, positions, room, self._limits, enabled)
        if own and (chunk := min(own, room.tokens)) and room.segments:
            # The prompt's part can be divided, so it takes what there is even without its canvas.
            taken = self._paging.branch_tokens(progress, index, chunk, self._made)
            if taken:
                self._made.add(progress.branch_segment(index, taken))
            if taken < chunk:
                return SplitReason.PAGES
        if reason is None and not self._add_canvas(progress, index, part):
            return SplitReason.PAGES
        return reason

    def _add_canvas(self, progress: Progress, index: int, part: CanvasPart) -> bool:
        scratch = self._paging.scratch(progress, len(part.token_ids), self._made)
        if scratch is None:
            return False
        self._made.add(progress.canvas_segment(index, part, scratch), scratch)
        return True
