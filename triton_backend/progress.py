"""How far one request has come, and the pages it holds; `record` brings it on.

Knows the request, its work and its sequences, not the queue, the budget or other requests. A
question whose text belongs to its prompt is a branch: a sequence over the whole pages of the
request's context, which holds the rest of the context and the question's own tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from plugins.spec import Phase
from triton_backend.core import (
    PROMPT,
    Piece,
    Reply,
    Request,
    RequestError,
    Segment,
    SplitReason,
    StepResult,
    Timing,
)
from triton_backend.kv_cache import KvCache, Pages, Sequence
from triton_backend.work import CanvasPart, Work

if TYPE_CHECKING:
    from triton_backend.denoise import CanvasState
    from triton_backend.host_store import Swapped
    from triton_backend.reads import ReadResult


def widest(request: Request) -> int:
    """Rows of a request's widest canvas."""
    if request.generation is not None:
        return request.generation.canvas_length
    return max(len(canvas.ids) for canvas in request.canvases)


@dataclass(eq=False)
class Progress:
    """One request from its arrival to its reply; without a `sequence` it is not running.

    `rank` orders requests: whoever has the lower one goes first.
    """

    request: Request
    work: Work
    rank: tuple[float, int]
    arrived: float
    page_size: int
    sequence: Sequence | None = None
    branches: dict[int, Sequence] = field(default_factory=dict)
    executions: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    swapped: Swapped | None = None
    split: SplitReason | None = None
    started: float | None = None
    timing: Timing = field(default_factory=Timing)
    error: RequestError | None = None
    _tokens: array[int] = field(default_factory=lambda: array("q"))

    def __lt__(self, other: Progress) -> bool:
        return self.rank < other.rank

    @property
    def is_running(self) -> bool:
        """Whether it may hold pages."""
        return self.sequence is not None

    @property
    def context(self) -> Sequence:
        """The sequence of a running request."""
        assert self.sequence is not None, "the request holds no pages"
        return self.sequence

    @property
    def remaining(self) -> int:
        """Context tokens still to compute: of the prompt, or of finished canvases."""
        return len(self.work.context_ids) - self.context.computed

    @property
    def commits(self) -> bool:
        """Whether those tokens are a finished canvas's."""
        return self.context.computed >= len(self.request.prompt_ids) and self.remaining > 0

    @property
    def grows(self) -> bool:
        """Whether there is context left to compute, of the request or of a canvas."""
        return self.remaining > 0 or self.next_own > 0

    @cached_property
    def widest(self) -> int:
        """Rows of its widest canvas."""
        return widest(self.request)

    @cached_property
    def _has_own(self) -> bool:
        return any(canvas.prompt_ids for canvas in self.request.canvases)

    @property
    def next_own(self) -> int:
        """Tokens left of the prompt of the first canvas that has some of its own to compute."""
        if not self._has_own:
            return 0
        return next((n for n in map(self.own_left, self.work.pending()) if n), 0)

    @property
    def tokens_left(self) -> int:
        """Tokens of its next canvas and of all that must be computed before it."""
        computed = self.sequence.computed if self.sequence else 0
        canvas = next(self.work.pending())
        more = self.own_left(canvas) + len(self.work.part(canvas).token_ids)
        return len(self.work.context_ids) - computed + more

    @property
    def done(self) -> bool:
        return self.error is not None or self.work.done

    def own_ids(self, canvas: int) -> tuple[int, ...]:
        """Tokens of the prompt that belong to one canvas alone."""
        return self.request.canvases[canvas].prompt_ids if self.request.canvases else ()

    def own_left(self, canvas: int) -> int:
        """Tokens still to compute for one canvas alone, 0 for one without a prompt of its own."""
        own = len(self.own_ids(canvas))
        if not own:
            return 0
        if canvas in self.branches:
            return len(self.work.context_ids) + own - self.branches[canvas].computed
        return len(self.work.context_ids) % self.page_size + own

    def branch(self, canvas: int, kv: KvCache) -> Sequence:
        """The branch of a canvas, begun if need be."""
        if canvas not in self.branches:
            tokens = len(self.work.context_ids)
            self.branches[canvas] = kv.branch(self.context, tokens)
        return self.branches[canvas]

    def context_segment(self, count: int) -> Segment:
        """The next `count` context tokens; the sequence has the pages."""
        start = self.context.computed
        ids = self._context_tokens()[start : start + count]
        phase = Phase.COMMIT if self.commits else Phase.PREFILL
        return Segment(self.request.key, PROMPT, phase, ids, start, self.context.pages)

    def _context_tokens(self) -> array[int]:
        """The context once more, as packing takes it without a look at each number."""
        if len(self._tokens) != len(self.work.context_ids):
            self._tokens = array("q", self.work.context_ids)
        return self._tokens

    def branch_segment(self, canvas: int, count: int) -> Segment:
        """The next `count` tokens of a branch."""
        branch, context = self.branches[canvas], self.work.context_ids
        shared = len(context) // self.page_size * self.page_size
        ids = (context[shared:] + self.own_ids(canvas))[branch.computed - shared :][:count]
        return Segment(self.request.key, canvas, Phase.PREFILL, ids, branch.computed, branch.pages)

    def canvas_segment(self, canvas: int, part: CanvasPart, scratch: Pages) -> Segment:
        """A canvas's next step over the whole context, on scratch pages no other canvas has."""
        branch = self.branches.get(canvas)
        pages = (branch or self.context).pages
        return Segment(
            key=self.request.key,
            canvas=canvas,
            phase=Phase.DENOISE,
            token_ids=part.token_ids,
            committed=len(self.work.context_ids) + len(self.own_ids(canvas)),
            pages=pages + scratch,
            slots=part.slots,
            label_ids=part.label_ids,
            label_columns=part.label_columns,
            denoising=part.denoising,
            state=part.state,
        )

    def record(
        self, segment: Segment, result: ReadResult | CanvasState | RequestError | None, kv: KvCache
    ) -> list[Piece]:
        """Takes in the result of one of its segments; what the client may be told because of it."""
        if isinstance(result, RequestError):
            self.error = result
        elif result is not None:
            pieces = self.work.record(segment.canvas, result)
            self._prune(segment.canvas, kv)
            return pieces
        elif segment.canvas == PROMPT:
            kv.advance(self.context, self.work.context_ids, len(segment.token_ids))
        else:
            kv.advance(self.branches[segment.canvas], (), len(segment.token_ids))
        return []

    def _prune(self, canvas: int, kv: KvCache) -> None:
        """A branch goes with its canvas."""
        if canvas in self.branches and not self.work.wants(canvas):
            kv.close(self.branches.pop(canvas))

    def drop(self, kv: KvCache) -> None:
        """Gives all pages back; what they held can be computed again."""
        for branch in self.branches.values():
            kv.close(branch)
        self.branches.clear()
        if self.sequence is not None:
            kv.close(self.sequence)
            self.sequence = None

    def count(self, phases: Collection[Phase], result: StepResult) -> None:
        """It had rows of these phases in an execution."""
        self.executions += 1
        self.timing.execution += result.seconds
        if Phase.DENOISE in phases:
            self.timing.denoise += result.seconds
        if len(phases) > 1 or Phase.DENOISE not in phases:
            self.timing.prefill += result.seconds
        if self.started is None:
            self.started = result.started
            self.timing.queue = result.started - self.arrived

    def reply(self) -> Reply:
        """The final answer of a request that is done."""
        return Reply(
            request=self.request,
            reads=() if self.error else self.work.reads,
            written=None if self.error else self.work.written,
            error=self.error,
            executions=self.executions,
            preemptions=self.preemptions,
            cached_tokens=self.cached_tokens,
            split=self.split,
            timing=self.timing,
        )
