"""The clock: arrivals, ends of steps and handed-over contexts, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.fleet import FleetOfWorkers
from triton_backend.simulation.job import Job, Role, Task
from triton_backend.simulation.results import Latencies, Summary, summarise
from triton_backend.simulation.setting import Setting
from triton_backend.simulation.worker import Worker

Event = tuple[float, int, Callable[[], None]]


class Simulator:
    """Plays arrivals on a fleet; memory grows with requests in flight, and 16 bytes a request."""

    def __init__(self, setting: Setting, arrivals: Iterable[Arrival]) -> None:
        self._setting = setting
        self._arrivals: Iterator[tuple[int, Arrival]] = iter(enumerate(arrivals))
        self.fleet = FleetOfWorkers(setting)
        self._events: list[Event] = []
        self._order = count()
        self._now = 0.0
        self.latencies = Latencies()

    def run(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """Until every request has its answer; `progress` is told how many have, now and then."""
        self._await_next()
        told = 0
        while self._events:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
            if len(self.latencies.total) - told >= _OFTEN:
                told = len(self.latencies.total)
                progress(told)
        for worker in self.fleet.workers:
            worker.scheduler.rest()

    def summary(self, warm_up: float = 0.0) -> Summary:
        """What was found; raises ValueError if there were no requests."""
        if not len(self.latencies.total):
            raise ValueError("no request has arrived, so there is nothing to sum up.")
        slo = self._setting.slo
        return summarise(self.latencies, self.fleet.workers, self._now, slo, warm_up)

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happen))

    def _await_next(self) -> None:
        found = next(self._arrivals, None)
        if found is not None:
            key, arrival = found
            self._at(arrival.at, lambda: self._arrive(key, arrival))

    def _arrive(self, key: int, arrival: Arrival) -> None:
        self._start(self.fleet.submit(Job(arrival, key, self._setting.model)))
        self._await_next()

    def _start(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            if worker.is_idle:
                self._next_step(worker)

    def _next_step(self, worker: Worker) -> None:
        ends = worker.begin(self._now)
        if ends is not None:
            self._at(ends, lambda: self._end_step(worker))

    def _end_step(self, worker: Worker) -> None:
        touched: list[Worker] = []
        tasks = worker.end()
        for task in tasks:
            touched += self._go_on(task)
        if tasks:
            touched += self.fleet.pages_came_back()
        self._start([worker, *touched])

    def _go_on(self, task: Task) -> list[Worker]:
        """What follows a task that is done."""
        job = task.job
        if task.role is Role.PROMPT:
            arrives = self._now + self.fleet.seconds_to_move(job)
            self._at(arrives, lambda: self._start(self.fleet.hand_over(job)))
            return []
        if job.is_last_stage:
            self.latencies.add(job, self._now)
            return []
        job.stage += 1
        return self.fleet.submit(job)


_OFTEN = 1000


def simulate(setting: Setting, arrivals: Iterable[Arrival], warm_up: float = 0.0) -> Summary:
    """Plays arrivals on a fleet to the end."""
    simulator = Simulator(setting, arrivals)
    simulator.run()
    return simulator.summary(warm_up)
