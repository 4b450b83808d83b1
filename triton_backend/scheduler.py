"""Decides what each execution holds, and takes in what it gave; knows no arrays and no engine.

A request starts when pages for its longest context and all its canvases are free, and holds them
to its reply. So whatever runs can always finish, and pages cannot be a deadlock. A step is filled
with canvases first (indivisible, oldest first: the oldest always fits an empty step), then with
commits of finished canvases, then with prompt chunks of running requests, then with new requests.
Within each kind nobody is overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from triton_backend.core import (
    ErrorKind,
    Piece,
    Reply,
    Request,
    RequestError,
    Segment,
    SplitReason,
    Step,
    StepResult,
)
from triton_backend.counters import Counters
from triton_backend.fusion import Room, StepLimits, split_reason
from triton_backend.page_pool import PagePool
from triton_backend.progress import Progress, pages_needed
from triton_backend.waiting import WaitingQueue
from triton_backend.work import CanvasPart, Work

MakeWork = Callable[[Request], Work]


class Scheduler:
    """First come, first served, with a token budget, chunked prompts and fusion."""

    def __init__(
        self,
        limits: StepLimits,
        pool: PagePool,
        page_size: int,
        fusion: bool,
        counters: Counters,
        make_work: MakeWork,
    ) -> None:
        self.pool = pool
        self.counters = counters
        self.limits = limits
        self._page_size = page_size
        self._fusion = fusion
        self._make_work = make_work
        self._waiting = WaitingQueue(counters)
        self._running: dict[int, Progress] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def add(self, request: Request, now: float) -> None:
        """Queues a request that the whole pool could hold."""
        assert pages_needed(request, self._page_size) <= self.pool.total, "it can never run"
        self._waiting.add(request, now)

    def rest(self) -> None:
        """Between bursts: asserts that every page is back, and that none was lost."""
        assert not self.pool.num_used, f"{self.pool.num_used} pages are held by nobody"
        self.pool.check_integrity()
        self.counters.rest()

    def cancel(self, key: int, now: float) -> Reply | None:
        """Drops a request between two steps and frees its pages; None if it is not here."""
        error = RequestError("request", "was cancelled", kind=ErrorKind.CANCELLED)
        if (request := self._waiting.remove(key, now)) is not None:
            return Reply(request, error=error)
        if key not in self._running:
            return None
        self._running[key].error = error
        return self._finish(self._running[key])

    def schedule(self, now: float) -> Step:
        """The next execution; reserves pages for the requests it starts, changes no progress."""
        room = Room.of(self.limits)
        segments = list(self._canvases(room))
        splits: list[tuple[int, SplitReason]] = []
        for progress in self._contexts(room, now):
            segments += self._extend(progress, room, splits)
        assert segments, "requests are here, and none of them can run"
        return Step(tuple(segments), tuple(splits))

    def record(self, step: Step, result: StepResult) -> list[Piece | Reply]:
        """Brings every request of a step up to date; what its client is told, replies last."""
        self.counters.count_step(step, result)
        news: list[Piece | Reply] = []
        for segment, found in zip(step.segments, result.results, strict=True):
            news += self._running[segment.key].record(segment, found)
        for key, reason in step.splits:
            self._running[key].split = reason
        members = [self._running[key] for key in dict.fromkeys(s.key for s in step.segments)]
        for progress in members:
            progress.executions += 1
            progress.execution_seconds += result.seconds
            progress.started = result.started if progress.started is None else progress.started
        return [*news, *(self._finish(progress) for progress in members if progress.done)]

    def _canvases(self, room: Room) -> Iterator[Segment]:
        """Canvases whose context is there, until one does not fit."""
        for progress in self._running.values():
            if progress.remaining:
                continue
            for index in progress.work.pending():
                part = progress.work.part(index)
                if not room.fits(len(part.token_ids), len(part.slots)):
                    return
                room.take(len(part.token_ids), len(part.slots))
                yield progress.canvas_segment(index, part)

    def _contexts(self, room: Room, now: float) -> Iterator[Progress]:
        """Requests to extend while there is room: commits, prompts of running ones, new ones."""
        growing = [progress for progress in self._running.values() if progress.remaining]
        for progress in sorted(growing, key=lambda progress: not progress.commits):
            if room.fits(1):
                yield progress
        while self._waiting and room.fits(1):
            if not self.pool.can_allocate(pages_needed(self._waiting.head, self._page_size)):
                self._waiting.hold_back(now)
                return
            yield self._start(now)

    def _start(self, now: float) -> Progress:
        request, arrived = self._waiting.pop(now)
        pages = self.pool.allocate(pages_needed(request, self._page_size))
        work = self._make_work(request)
        progress = Progress(request, work, self._page_size, pages, arrived)
        self._running[request.key] = progress
        return progress

    def _extend(
        self, progress: Progress, room: Room, splits: list[tuple[int, SplitReason]]
    ) -> Iterator[Segment]:
        """The next chunk of a context and, when it is the last, the canvases that may join it."""
        chunk = min(progress.remaining, room.tokens)
        if chunk:
            room.take(chunk)
            yield progress.context_segment(chunk)
        if chunk < progress.remaining:
            return
        positions = len(progress.work.context_ids)
        for index in progress.work.pending():
            part = progress.work.part(index)
            if (reason := self._split(part, positions, room, bool(chunk))) is not None:
                # Without a context there is nothing to be split from: the canvas just runs later.
                splits += [(progress.request.key, reason)] if chunk else []
                return
            room.take(len(part.token_ids), len(part.slots))
            positions += len(part.token_ids)
            yield progress.canvas_segment(index, part)

    def _split(
        self, part: CanvasPart, positions: int, room: Room, has_chunk: bool
    ) -> SplitReason | None:
        enabled = self._fusion or not has_chunk
        return split_reason(part, positions, room, self.limits, enabled)

    def _finish(self, progress: Progress) -> Reply:
        del self._running[progress.request.key]
        self.pool.release(progress.pages)
        return progress.reply()
