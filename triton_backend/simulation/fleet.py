"""Which worker does what: colocated, disaggregated or hybrid, by the rules of Sangam.

Prompts go where the fewest tokens of prompts are owed. With prefill workers, they go there first
come, first served; where each of those owes `overload` tokens or lacks pages, the first one goes to
a worker that does both, below the same mark, if that leaves pages for all that is to be handed
over. What is handed over goes where the most pages are free, and before what overflows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from triton_backend.kv_cache import Need
from triton_backend.page_pool import pages_for
from triton_backend.simulation.job import Job, Role, Task, TaskMaker
from triton_backend.simulation.setting import Placement, Setting
from triton_backend.simulation.worker import HELD_AT_ONCE, Worker

_FIRST = 1e9
"""Seconds by which a handed-over task ranks before those that only wait for their prompt."""


class FleetOfWorkers:
    """Sends stages to workers; `prefill` ones compute contexts, `others` the rest or everything."""

    def __init__(self, setting: Setting) -> None:
        fleet, model, reuse = setting.fleet, setting.model, setting.prefix_cache
        self._setting = setting
        self._maker = TaskMaker(model)
        self.prefill = [Worker(model, setting.prefill_policy, reuse) for _ in range(fleet.prefill)]
        self.others = [Worker(model, setting.policy, reuse) for _ in range(fleet.others)]
        self._overflows = fleet.placement is Placement.HYBRID
        self._pending: deque[Job] = deque()
        self._arriving: deque[Task] = deque()

    @property
    def workers(self) -> list[Worker]:
        return self.prefill + self.others

    def submit(self, job: Job) -> list[Worker]:
        """Takes a job's next stage; the workers that have got something to do."""
        if not self.prefill:
            return [self._give(job, Role.WHOLE, _least_owed(self.others))]
        self._pending.append(job)
        return self._send_prompts()

    def seconds_to_move(self, job: Job) -> float:
        """How long a finished context is under way to whoever denoises over it."""
        return self._setting.model.handed_over_bytes(len(job.ids)) / self._setting.link

    def hand_over(self, job: Job) -> list[Worker]:
        """A context has come over; the workers that have got something to do."""
        self._arriving.append(self._maker.make(job, Role.DENOISE))
        return self._place()

    def pages_came_back(self) -> list[Worker]:
        """Something has ended; the workers that have got something to do because of it."""
        return self._place() + self._send_prompts() if self.prefill else []

    def _place(self) -> list[Worker]:
        """Handed-over contexts go to workers, in order, while there are pages for them."""
        touched = []
        while self._arriving:
            task = self._arriving[0]
            need = _with_context(task, self._setting)
            able = [worker for worker in self.others if worker.has_pages(need)]
            if not able:
                break
            worker = max(able, key=lambda one: one.free_pages)
            self._arriving.popleft()
            task.need = need
            worker.take(task, task.job.arrival.at - _FIRST)
            touched.append(worker)
        return touched

    def _send_prompts(self) -> list[Worker]:
        touched = []
        while self._pending:
            job = self._pending[0]
            worker, role = self._choose(job)
            if worker is None:
                break
            self._pending.popleft()
            touched.append(self._give(job, role, worker))
        return touched

    def _choose(self, job: Job) -> tuple[Worker | None, Role]:
        need, mark = self._need(job), self._setting.overload
        able = [worker for worker in self.prefill if worker.has_pages(need)]
        if not self._overflows:
            return _least_owed(able) if able else None, Role.PROMPT
        below = [worker for worker in able if worker.owed < mark]
        if below:
            return _least_owed(below), Role.PROMPT
        claimed = sum(_with_context(task, self._setting).full for task in self._arriving)
        free = sum(worker.free_pages for worker in self.others)
        takers = [w for w in self.others if w.owed < mark and w.has_pages(need)]
        if takers and free - need.full > claimed:
            return _least_owed(takers), Role.WHOLE
        return None, Role.WHOLE

    def _need(self, job: Job) -> Need:
        """Pages of a context and of all that may come behind it."""
        model = self._setting.model
        more = 0 if model.recomputes else model.canvas * len(job.steps[job.stage])
        pages = pages_for(len(job.ids) + more + model.canvas, model.kv.page_size) + 1
        behind = pages_for(model.kv.behind + model.canvas, model.kv.page_size) + 2
        return Need(pages, min(pages, behind) if model.kv.window else pages)

    def _give(self, job: Job, role: Role, worker: Worker) -> Worker:
        worker.take(self._maker.make(job, role), job.arrival.at)
        return worker


def _with_context(task: Task, setting: Setting) -> Need:
    """Pages of a handed-over task and of the context that is held for it."""
    shape = setting.model.kv
    context = pages_for(len(task.job.ids), shape.page_size)
    seen = min(context, pages_for(shape.behind, shape.page_size) + 1 + HELD_AT_ONCE)
    return Need(task.need.full + context, task.need.sliding + seen)


def _least_owed(workers: Iterable[Worker]) -> Worker:
    return min(workers, key=lambda worker: (worker.owed, worker.num_tasks))
