"""One simulated request on its way through the fleet, and the part of it that one worker does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from triton_backend.accept import EntropyBound
from triton_backend.core import Canvas, Generation, Request
from triton_backend.denoise import Denoising
from triton_backend.kv_cache import Need, Sequence
from triton_backend.needs import least_need
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.setting import Model
from triton_backend.simulation.work import SimulatedWork, blanks


class Role(Enum):
    """What a worker does of a stage: all of it, the context alone, or what follows it."""

    WHOLE = "whole"
    PROMPT = "prompt"
    DENOISE = "denoise"


class Job:
    """A request from its arrival to its end, stage by stage.

    A stage is a context and the canvases over it: one for all canvases, or one for each where the
    model computes the whole sequence anew.
    """

    __slots__ = ("arrival", "first_canvas", "ids", "key", "stage", "steps")

    def __init__(self, arrival: Arrival, key: int, model: Model) -> None:
        self.arrival = arrival
        self.key = key
        self.stage = 0
        self.first_canvas: float | None = None
        steps = arrival.steps
        self.steps = tuple((n,) for n in steps) if model.recomputes else (steps,)
        tokens = arrival.prompt
        if model.recomputes:
            tokens += model.canvas * len(steps)
        # Unlike any other request's from its own first token on.
        shared = arrival.shared if arrival.group else 0
        own = (-1 - key, *blanks(tokens - shared - 1)) if tokens > shared else ()
        self.ids = (arrival.group,) * shared + own

    @property
    def is_last_stage(self) -> bool:
        return self.stage + 1 == len(self.steps)


@dataclass(eq=False, slots=True)
class Task:
    """A stage, or half of one, on one worker.

    `owed` are tokens of its context still to compute, as the router counts them. `last` is the end
    of its latest execution once it has begun to denoise. `held` are pages that were handed over.
    """

    job: Job
    role: Role
    request: Request
    work: SimulatedWork
    need: Need
    owed: int
    last: float | None = None
    held: Sequence | None = None


class TaskMaker:
    """Makes tasks of a model with keys of their own."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._canvas = Canvas(blanks(model.canvas), (), (), 0)
        self._denoising = Denoising(0, model.most_steps, 0.4, 0.8, EntropyBound(0.1), 1, 0.005)
        self._generations: dict[int, Generation] = {}
        self._made = 0

    def make(self, job: Job, role: Role) -> Task:
        """The task of a job's present stage."""
        self._made += 1
        steps, width = job.steps[job.stage], self._model.canvas
        ids = () if role is Role.DENOISE else job.ids
        chained = not (job.arrival.is_read or self._model.recomputes)
        if role is Role.PROMPT:
            # Never run: the router ends the task when its context is there.
            request = Request(self._made, ids, (_NO_CANVAS,))
            work = SimulatedWork(request, ids, 1, (1,), False)
        elif chained:
            request = Request(self._made, ids, generation=self._generation(len(steps)))
            work = SimulatedWork(request, ids, width, steps, True)
        else:
            request = Request(self._made, ids, (self._canvas,) * len(steps))
            work = SimulatedWork(request, ids, width, steps, False)
        shape = self._model.kv
        return Task(job, role, request, work, least_need(request, shape), len(ids))

    def _generation(self, canvases: int) -> Generation:
        width = self._model.canvas
        if canvases not in self._generations:
            made = Generation(canvases * width, width, self._denoising, frozenset())
            self._generations[canvases] = made
        return self._generations[canvases]


_NO_CANVAS = Canvas((0,), (), (), 0)
