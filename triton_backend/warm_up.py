"""One read through the whole engine before the first client's; leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.core import Canvas, Reply, Request, Step, StepResult
from triton_backend.scheduler import Scheduler

WIDTH = 16


def warm_up(
    scheduler: Scheduler, execute: Callable[[Step], StepResult], contract: EngineContract
) -> None:
    """Serves a read of one prompt token on a scheduler made for it.

    Raises:
        EngineError: the engine runs, but its numbers are no use.
    """
    limits = contract.limits
    budget = scheduler.limits.max_tokens
    width = min(WIDTH, limits.max_canvas, limits.max_context - 1, budget)
    canvas = Canvas((contract.pad_id,) * width, (0,), ((contract.pad_id,),), 1)
    scheduler.add(Request(0, (contract.bos_id,), (canvas,)), time.monotonic())
    while scheduler.has_work:
        step = scheduler.schedule(time.monotonic())
        for reply in scheduler.record(step, execute(step)):
            if isinstance(reply, Reply) and reply.error is not None:
                raise EngineError(f"the engine cannot serve a first read: {reply.error}.")
