"""An engine driven in this process, one execution at a time, by the server's own scheduler.

Imports torch for logits alone, so that a process that keeps none holds what a server would.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from build_engine.contract import load_contract
from triton_backend.core import Canvas, Reply, Request, Step, StepResult, Transfer
from triton_backend.counters import Counters
from triton_backend.denoise import CanvasState
from triton_backend.execute import run
from triton_backend.kv_cache import KvCache, KvShape
from triton_backend.limits import step_limits
from triton_backend.pack import PackedStep
from triton_backend.policy import Policy as SchedulerPolicy
from triton_backend.reading import Reading
from triton_backend.runner import StepOutput
from triton_backend.runner_cpu import CpuRunner
from triton_backend.scheduler import Scheduler
from triton_backend.work import Work
from triton_backend.writing import Writing

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Policy:
    """How a session fills its executions; 0 tokens means the engine's own limit.

    `reuse` keeps prefixes for later requests of the same batch.
    """

    max_step_tokens: int = 0
    fusion: bool = True
    reuse: bool = False


def as_tensor(values: Any) -> Tensor:
    """A runner's array as a tensor of the same memory; NumPy's uint16 stands for bfloat16."""
    import torch  # noqa: PLC0415 - see above

    tensor = torch.as_tensor(values)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor


class HiddenTap:
    """A runner that keeps the last execution's hidden rows, for full logits and comparisons."""

    def __init__(self, runner: CpuRunner) -> None:
        self.runner = runner
        self.contract = runner.contract
        self.last: Any = None

    def create_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocate the KV pools."""
        self.runner.create_pools(full_pages, sliding_pages)

    def create_host_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocate pools for pages that are swapped out."""
        self.runner.create_host_pools(full_pages, sliding_pages)

    def move(self, saves: Sequence[Transfer], loads: Sequence[Transfer]) -> None:
        """Copy pages out and in."""
        self.runner.move(saves, loads)

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution, its hidden rows kept."""
        self.last = self.runner.hidden(packed)
        return self.runner.heads(self.last, packed)

    def logits(self, rows: slice) -> Tensor:
        """Soft-capped fp32 logits [rows, V] of the last execution's output rows."""
        cap = self.contract.geometry.softcap
        raw = (as_tensor(self.last[rows]) @ self._embedding.t()).float()
        return cap * (raw / cap).tanh()

    @cached_property
    def _embedding(self) -> Tensor:
        # A copy: the engine's own is read-only, which tensors cannot be.
        return as_tensor(np.array(self.runner.embedding))


class Session:
    """Loads an engine once; `serve` serves a batch of requests to their replies."""

    def __init__(self, engine: Path, pages: int = 512, threads: int = 0) -> None:
        self.contract = load_contract(engine, verify=False)
        self.tap = HiddenTap(self._runner(engine, threads))
        self.tap.create_pools(pages, pages)
        self.pages = pages
        self.logits: dict[int, Tensor] = {}
        self.states: dict[int, list[tuple[int, CanvasState]]] = {}

    def _runner(self, engine: Path, threads: int) -> CpuRunner:
        return CpuRunner(engine, self.contract, threads)

    def scheduler(self, policy: Policy = Policy()) -> Scheduler:
        """A scheduler over all pages of this session, which hold nothing yet."""
        settings = SchedulerPolicy(fusion=policy.fusion)
        return self.scheduler_of(settings, policy.max_step_tokens, policy.reuse)

    def scheduler_of(
        self, policy: SchedulerPolicy, max_step_tokens: int = 0, reuse: bool = False
    ) -> Scheduler:
        """The same with a policy of the scheduler's own."""
        contract = self.contract
        shape = KvShape(contract.page_size, contract.window, self.pages, self.pages)
        limits = step_limits(contract, max_step_tokens)
        return Scheduler(limits, KvCache(shape, reuse), policy, Counters(), self._work)

    def _work(self, request: Request) -> Work:
        if request.generation is None:
            return Reading(request)
        context = self.contract.limits.max_context
        return Writing(request, _numbers, self.contract.geometry.vocab_size, context)

    def serve(
        self,
        requests: Iterable[Request],
        policy: Policy = Policy(),
        keep_logits: bool = False,
        scheduler: Scheduler | None = None,
    ) -> dict[int, Reply]:
        """Replies by request key; the same scheduler again knows the prefixes of earlier requests.

        `states` then holds every canvas after every step, by key; with `keep_logits`, `logits`
        holds the logits of each read's slots.
        """
        self.states = {}
        scheduler = scheduler or self.scheduler(policy)
        for request in requests:
            scheduler.add(request, time.monotonic())
        replies: dict[int, Reply] = {}
        while scheduler.has_work:
            step = scheduler.schedule(time.monotonic())
            result = run(self.tap, step)
            self._keep(step, result, keep_logits)
            for news in scheduler.record(step, result):
                if isinstance(news, Reply):
                    replies[news.request.key] = news
        scheduler.rest()
        return replies

    def _keep(self, step: Step, result: StepResult, logits: bool) -> None:
        row = 0
        for segment, found in zip(step.segments, result.results, strict=True):
            if isinstance(found, CanvasState):
                self.states.setdefault(segment.key, []).append((segment.canvas, found))
            elif segment.slots and logits:
                rows = slice(row, row + len(segment.slots))
                self.logits[segment.key] = self.tap.logits(rows)
            row += len(segment.slots)


def _numbers(ids: Sequence[int], more: bool = False) -> str:  # noqa: ARG001
    """Stands for a tokenizer's text, which no benchmark looks at."""
    return "".join(f"{token} " for token in ids)


def read_request(
    key: int, prompt: Sequence[int], canvas: Sequence[int], slots: Sequence[int] | None = None
) -> Request:
    """A read of a canvas at `slots` (default: every position) with two labels a slot."""
    slots = tuple(range(len(canvas)) if slots is None else slots)
    labels = ((5, 9),) * len(slots)
    return Request(key, tuple(prompt), (Canvas(tuple(canvas), slots, labels, 2),))
