"""What has happened since the server started: plain numbers that one thread writes."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from plugins.spec import Phase
from triton_backend.core import (
    ErrorKind,
    Reply,
    RequestError,
    SplitReason,
    Step,
    StepResult,
)


@dataclass
class Counters:
    """Totals, and the shape of the last execution.

    The deques hold what was observed since it was last published, which empties them: seconds of
    each execution, of each wait for a first one, and of each way to a first result.
    """

    executions: int = 0
    rows: Counter[Phase] = field(default_factory=Counter)
    fused: int = 0
    split: Counter[SplitReason] = field(default_factory=Counter)
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    read_canvases: int = 0
    written_tokens: int = 0
    written_canvases: int = 0
    limited: int = 0
    preemptions: int = 0
    swapped_pages: int = 0
    expired: int = 0
    prefix_hits: int = 0
    prefix_misses: int = 0
    prefix_tokens: int = 0
    context_started: int = 0
    kv_waits: int = 0
    kv_wait_seconds: float = 0.0
    step_seconds: deque[float] = field(default_factory=deque)
    queue_seconds: deque[float] = field(default_factory=deque)
    first_seconds: deque[float] = field(default_factory=deque)
    scheduled: int = 0
    context_requests: int = 0
    context_tokens: int = 0
    denoise_requests: int = 0

    def count_step(self, step: Step, result: StepResult) -> None:
        """One execution has run."""
        self.executions += 1
        self.step_seconds.append(result.seconds)
        for segment in step.segments:
            self.rows[segment.phase] += len(segment.token_ids)
        prompts = [segment for segment in step.segments if segment.phase is not Phase.DENOISE]
        self.scheduled = len({segment.key for segment in step.segments})
        self.context_requests = len(prompts)
        self.context_tokens = sum(len(segment.token_ids) for segment in prompts)
        denoised = {s.key for s in step.segments if s.phase is Phase.DENOISE}
        self.denoise_requests = len(denoised)

    def count_prefix(self, cached: int, tokens: int) -> None:
        """A context of so many tokens begins, some of them known already."""
        self.prefix_hits += bool(cached)
        self.prefix_misses += not cached
        self.prefix_tokens += cached
        self.context_started += tokens

    def count_reply(self, reply: Reply) -> None:
        """A request has got its final answer."""
        if reply.error is not None:
            self.count_error(reply.error)
            return
        self.ok += 1
        self.queue_seconds.append(reply.timing.queue)
        self.read_canvases += len(reply.reads)
        if reply.written is not None:
            self.written_tokens += len(reply.written.token_ids)
            self.written_canvases += len(reply.written.steps)
            self.limited += reply.written.effort < 1
        if reply.split is None:
            self.fused += 1
        else:
            self.split[reply.split] += 1

    def count_error(self, error: RequestError) -> None:
        """A request was refused, failed or was cancelled."""
        if error.kind is ErrorKind.CANCELLED:
            self.cancelled += 1
        else:
            self.failed += 1

    def rest(self) -> None:
        """No execution is running."""
        self.scheduled = self.context_requests = self.context_tokens = self.denoise_requests = 0
