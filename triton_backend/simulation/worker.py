"""One simulated worker: a scheduler and its KV cache as they serve, a cost model for its engine."""

from __future__ import annotations

from dataclasses import dataclass

from plugins.spec import Phase
from triton_backend.core import Piece, Reply, Request, Segment, Step, StepResult
from triton_backend.cost_model import rows_of
from triton_backend.counters import Counters
from triton_backend.kv_cache import KvCache, Need, Sequence
from triton_backend.policy import Policy
from triton_backend.scheduler import Scheduler
from triton_backend.simulation.job import Role, Task
from triton_backend.simulation.setting import Model
from triton_backend.simulation.work import SimulatedWork

HELD_AT_ONCE = 8
"""Pages that a handed-over context takes at once: sliding layers let go of some in between."""

_DONE: object = object()
"""The result of a canvas's step, which nobody looks into."""


@dataclass
class Usage:
    """What a worker has seen: seconds busy, pages held times seconds, the largest sizes."""

    busy: float = 0.0
    page_seconds: float = 0.0
    most_pages: int = 0
    largest_gap: float = 0.0
    longest_step: float = 0.0
    most_running: int = 0


class Worker:
    """Takes tasks, runs steps; the clock is the simulator's."""

    def __init__(self, model: Model, policy: Policy, prefix_cache: bool) -> None:
        self._cost = model.cost
        self._budget = model.limits.max_tokens
        self._tasks: dict[int, Task] = {}
        self._step: Step | None = None
        self._began = self._ends = 0.0
        self.kv = KvCache(model.kv, prefix_cache)
        self.counters = Counters()
        self.scheduler = Scheduler(model.limits, self.kv, policy, self.counters, self._work_of)
        self.usage = Usage()
        self.owed = 0
        self._reserved = Need(0, 0)

    def _work_of(self, request: Request) -> SimulatedWork:
        return self._tasks[request.key].work

    @property
    def num_tasks(self) -> int:
        return len(self._tasks)

    @property
    def is_idle(self) -> bool:
        return self._step is None

    @property
    def free_pages(self) -> int:
        """Pages of full layers that no task here will ever want."""
        return self.kv.shape.full_pages - self._reserved.full

    def has_pages(self, need: Need) -> bool:
        """Whether a task would never have to give its pages back."""
        full, sliding = self._reserved.full + need.full, self._reserved.sliding + need.sliding
        return full <= self.kv.shape.full_pages and sliding <= self.kv.shape.sliding_pages

    def take(self, task: Task, rank_time: float) -> None:
        """Queues a task as if it had come at `rank_time`."""
        self._tasks[task.request.key] = task
        self.owed += task.owed
        self._reserve(task, 1)
        if task.role is Role.DENOISE:
            task.held = self._hold(task)
        self.scheduler.add(task.request, rank_time)

    def _hold(self, task: Task) -> Sequence:
        """Pages of a context that comes from elsewhere: written, and not the scheduler's."""
        ids, at_once = task.job.ids, HELD_AT_ONCE * self.kv.shape.page_size
        sequence = Sequence("", private=True)
        while (left := len(ids) - sequence.computed) > 0:
            self.kv.extend(sequence, min(left, at_once))
            self.kv.advance(sequence, ids, min(left, at_once))
        return sequence

    def _reserve(self, task: Task, sign: int) -> None:
        full, sliding = self._reserved
        self._reserved = Need(full + sign * task.need.full, sliding + sign * task.need.sliding)

    def begin(self, now: float) -> float | None:
        """Starts the next step; when it ends, or None if there is nothing to do."""
        if not self.scheduler.has_work:
            return None
        self._step = self.scheduler.schedule(now)
        seconds = self._cost.seconds(rows_of(self._step.segments))
        self._began, self._ends = now, now + seconds
        used, usage = self.kv.full.num_used, self.usage
        usage.busy += seconds
        usage.page_seconds += seconds * used
        usage.most_pages = max(usage.most_pages, used)
        usage.longest_step = max(usage.longest_step, seconds)
        usage.most_running = max(usage.most_running, self.scheduler.num_running)
        return self._ends

    def end(self) -> list[Task]:
        """The step is over: the tasks that ended with it."""
        assert self._step is not None
        step, self._step = self._step, None
        for segment in step.segments:
            self._count(segment)
        results = tuple(_DONE if s.phase is Phase.DENOISE else None for s in step.segments)
        seconds = self._ends - self._began
        # What a canvas's result is, is between the engine and its work.
        news = self.scheduler.record(step, StepResult(results, self._began, seconds))  # type: ignore[arg-type]
        self.counters.step_seconds.clear()
        for one in news:
            if isinstance(one, Piece):
                job = self._tasks[one.request.key].job
                job.first_canvas = self._ends if job.first_canvas is None else job.first_canvas
        return [self._release(one.request.key) for one in news if isinstance(one, Reply)]

    def _count(self, segment: Segment) -> None:
        task, end = self._tasks[segment.key], self._ends
        if segment.phase is Phase.DENOISE:
            if task.last is None:
                self._context_is_there(task)
                task.last = end
        elif task.owed and segment.committed + len(segment.token_ids) >= len(
            task.request.prompt_ids
        ):
            self._context_is_there(task)
        if task.last is not None:
            self.usage.largest_gap = max(self.usage.largest_gap, end - task.last)
            task.last = end

    def _context_is_there(self, task: Task) -> None:
        self.owed -= task.owed
        task.owed = 0
        if task.role is Role.PROMPT:
            task.work.finish()

    def _release(self, key: int) -> Task:
        task = self._tasks.pop(key)
        self._reserve(task, -1)
        if task.held is not None:
            self.kv.close(task.held)
        return task
