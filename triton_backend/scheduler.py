"""Decides what each execution holds, and takes in what it gave; knows no arrays and no engine.

Requests are ordered by rank: time of arrival, later by priority. A request takes pages as it goes
on; when they run out, the running request of the worst rank gives its own back and waits again,
its tokens and canvases kept, its context to be computed anew; reads and generations are treated
alike. So the best rank can always go on, and everybody comes to be the best.
"""

from __future__ import annotations

from collections.abc import Callable

from plugins.spec import Phase
from triton_backend.core import (
    ErrorKind,
    Piece,
    Reply,
    Request,
    RequestError,
    Step,
    StepResult,
)
from triton_backend.counters import Counters
from triton_backend.denoise import CanvasState
from triton_backend.filling import Filling
from triton_backend.fusion import Room, StepLimits
from triton_backend.kv_cache import KvCache
from triton_backend.load_control import LoadControl
from triton_backend.needs import least_need
from triton_backend.paging import Paging, Swapping
from triton_backend.policy import Policy
from triton_backend.progress import Progress
from triton_backend.running import Running
from triton_backend.step_builder import StepBuilder
from triton_backend.waiting import WaitingQueue
from triton_backend.work import Work

MakeWork = Callable[[Request], Work]


class Scheduler:
    """Decides by a policy, within the limits of one execution and the pages of the KV cache."""

    def __init__(
        self,
        limits: StepLimits,
        kv: KvCache,
        policy: Policy,
        counters: Counters,
        make_work: MakeWork,
        swapping: Swapping | None = None,
    ) -> None:
        swapping = swapping or Swapping()
        self.host = swapping.host
        self.kv = kv
        self.counters = counters
        self.limits = limits
        self.policy = policy
        self._make_work = make_work
        self._waiting = WaitingQueue(counters, policy.fair)
        self._running = Running()
        budget = policy.budget(limits.max_tokens)
        paging = Paging(kv, self._running, self._waiting, counters, budget, swapping)
        self._filling = Filling(limits, policy, self._running, self._waiting, paging)
        self._made = StepBuilder(Room.of(limits))
        self._control = LoadControl(policy.slo_seconds) if policy.slo_seconds else None

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_preempted(self) -> int:
        """Waiting requests that have run before."""
        return self._waiting.num_preempted

    @property
    def has_work(self) -> bool:
        return bool(len(self._running) or len(self._waiting))

    def add(self, request: Request, now: float) -> None:
        """Queues a request that the whole cache could hold."""
        need, shape = least_need(request, self.kv.shape), self.kv.shape
        possible = need.full <= shape.full_pages and need.sliding <= shape.sliding_pages
        assert possible, f"it needs {need} of {shape}: it can never run"
        rank = (now + request.priority * self.policy.ageing_seconds, request.key)
        work = self._make_work(request)
        self._waiting.add(Progress(request, work, rank, now, self.kv.shape.page_size))

    def rest(self) -> None:
        """Between bursts: asserts that every page is back, and that none was lost."""
        for pool in (self.kv.full, self.kv.sliding, self.host.full, self.host.sliding):
            assert not pool.num_used, f"{pool!r}: pages are held by nobody"
        self.kv.check_integrity()
        self.counters.rest()

    def cancel(self, key: int, now: float) -> Reply | None:
        """Drops a request between two steps and frees its pages; None if it is not here."""
        error = RequestError("request", "was cancelled", kind=ErrorKind.CANCELLED)
        if (waiting := self._waiting.find(key)) is not None:
            self._waiting.take(waiting, now)
            waiting.error = error
            return self._leave(waiting)
        if key not in self._running:
            return None
        self._running[key].error = error
        return self._finish(self._running[key])

    def expire(self, now: float) -> list[Reply]:
        """Replies to requests that have waited for longer than allowed without ever running."""
        replies = []
        for progress in self._waiting.overdue(now, self.policy.queue_timeout):
            self._waiting.take(progress, now)
            limit = progress.request.queue_timeout or self.policy.queue_timeout
            progress.error = RequestError(
                "request", f"waited {now - progress.arrived:.3g} s for its first execution",
                f"the server is overloaded and the limit is {limit:.3g} s", ErrorKind.UNAVAILABLE,
            )  # fmt: skip
            self.counters.expired += 1
            replies.append(self._leave(progress))
        return replies

    def schedule(self, now: float) -> Step:
        """The next execution; gives pages to the requests in it, changes no progress."""
        if self._control is not None:
            self._control.choose((*self._running, *self._waiting), now)
        self._made = self._filling.fill(now)
        assert self._made.segments, "requests are here, and none of them can run"
        return self._made.step()

    def record(self, step: Step, result: StepResult) -> list[Piece | Reply]:
        """Brings every request of a step up to date; what its client is told, replies last."""
        self.counters.count_step(step, result)
        if self._control is not None:
            self._observe(self._control, step, result)
        self._drop_scratch()
        news: list[Piece | Reply] = []
        for segment, found in zip(step.segments, result.results, strict=True):
            progress = self._running[segment.key]
            news += progress.record(segment, found, self.kv)
            self._waiting.serve(progress.request.tenant, len(segment.token_ids))
        for key, reason in step.splits:
            self._running[key].split = reason
        phases: dict[int, set[Phase]] = {}
        for segment in step.segments:
            phases.setdefault(segment.key, set()).add(segment.phase)
        members = [self._running[key] for key in phases]
        for progress in members:
            progress.count(phases[progress.request.key], result)
        news += [self._finish(progress) for progress in members if progress.done]
        if self.policy.check:
            self.kv.audit()
        return news

    def fail(self, step: Step, error: RequestError) -> list[Reply]:
        """The step did not run: its requests get the error, all others go on."""
        self._drop_scratch()
        members = self._members(step)
        for progress in members:
            progress.error = error
        replies = [self._finish(progress) for progress in members]
        self._lose_copies(step)
        return replies

    def _lose_copies(self, step: Step) -> None:
        """Contexts that were to be copied with a step that failed are to be computed again."""
        saved = {move.slot for move in step.saves if not move.sliding}
        for progress in self._waiting:
            if progress.swapped is not None and saved & set(progress.swapped.full):
                self.host.drop(progress.swapped)
                progress.swapped = None
        for progress in self._made.loaded:
            if progress.is_running:
                self._running.remove(progress)
                progress.drop(self.kv)
                self._waiting.add(progress)

    def _observe(self, control: LoadControl, step: Step, result: StepResult) -> None:
        control.observe(sum(len(segment.token_ids) for segment in step.segments), result)
        for segment, found in zip(step.segments, result.results, strict=True):
            if segment.denoising is not None and isinstance(found, CanvasState) and found.finished:
                if not segment.denoising.step_cap:
                    control.observe_canvas(found.steps, segment.denoising.max_steps)

    def _members(self, step: Step) -> list[Progress]:
        return [self._running[key] for key in dict.fromkeys(s.key for s in step.segments)]

    def _drop_scratch(self) -> None:
        for pages in self._made.scratch:
            self.kv.drop(pages)
        self._made.scratch.clear()
        self.host.settle()

    def _finish(self, progress: Progress) -> Reply:
        self._running.remove(progress)
        return self._leave(progress)

    def _leave(self, progress: Progress) -> Reply:
        progress.drop(self.kv)
        if progress.swapped is not None:
            self.host.drop(progress.swapped)
            progress.swapped = None
        return progress.reply()
