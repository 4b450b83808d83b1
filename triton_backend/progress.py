"""How far one admitted request has come; changed by `record` alone.

Knows the request, its work and its pages, not the queue, the budget or other requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
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
)
from triton_backend.page_pool import pages_for
from triton_backend.work import CanvasPart, Work

if TYPE_CHECKING:
    from triton_backend.denoise import CanvasState
    from triton_backend.reads import ReadResult


@dataclass
class Progress:
    """An admitted request with all the pages it will ever need: its context's, then scratch pages.

    `computed` counts the context positions whose keys and values are there.
    """

    request: Request
    work: Work
    page_size: int
    pages: tuple[int, ...]
    arrived: float
    computed: int = 0
    executions: int = 0
    split: SplitReason | None = None
    started: float | None = None
    execution_seconds: float = 0.0
    error: RequestError | None = None

    @property
    def remaining(self) -> int:
        """Context tokens still to compute: of the prompt, or of a finished canvas."""
        return len(self.work.context_ids) - self.computed

    @property
    def commits(self) -> bool:
        """Whether those tokens are a finished canvas's."""
        return self.computed >= len(self.request.prompt_ids) and self.remaining > 0

    @property
    def done(self) -> bool:
        return self.error is not None or self.work.done

    def context_segment(self, count: int) -> Segment:
        """The next `count` context tokens."""
        ids = self.work.context_ids[self.computed : self.computed + count]
        phase = Phase.COMMIT if self.commits else Phase.PREFILL
        return Segment(self.request.key, PROMPT, phase, ids, self.computed, self._context)

    def canvas_segment(self, canvas: int, part: CanvasPart) -> Segment:
        """A canvas's next step over the whole context, on scratch pages no other canvas has."""
        return Segment(
            key=self.request.key,
            canvas=canvas,
            phase=Phase.DENOISE,
            token_ids=part.token_ids,
            committed=len(self.work.context_ids),
            pages=self._context + self._scratch(canvas),
            slots=part.slots,
            label_ids=part.label_ids,
            label_columns=part.label_columns,
            denoising=part.denoising,
            state=part.state,
        )

    def record(
        self, segment: Segment, result: ReadResult | CanvasState | RequestError | None
    ) -> list[Piece]:
        """Takes in the result of one of its segments; what the client may be told because of it."""
        if result is None:
            self.computed += len(segment.token_ids)
        elif isinstance(result, RequestError):
            self.error = result
        else:
            return self.work.record(segment.canvas, result)
        return []

    def reply(self) -> Reply:
        """The final answer of a request that is done."""
        queued = 0.0 if self.started is None else self.started - self.arrived
        return Reply(
            request=self.request,
            reads=() if self.error else self.work.reads,
            written=None if self.error else self.work.written,
            error=self.error,
            executions=self.executions,
            split=self.split,
            queue_seconds=queued,
            execution_seconds=self.execution_seconds,
        )

    @property
    def _context(self) -> tuple[int, ...]:
        return self.pages[: pages_for(len(self.work.context_ids), self.page_size)]

    def _scratch(self, canvas: int) -> tuple[int, ...]:
        if self.request.generation is not None:
            return self.pages[context_pages(self.request, self.page_size) :]
        first, last = list(pairwise(self._bounds()))[canvas]
        return self.pages[first:last]

    def _bounds(self) -> Iterator[int]:
        widths = (pages_for(len(c.ids), self.page_size) for c in self.request.canvases)
        return accumulate(widths, initial=context_pages(self.request, self.page_size))


def context_pages(request: Request, page_size: int) -> int:
    """Pages of the longest context a request can come to; its last canvas is never committed."""
    tokens = len(request.prompt_ids)
    if (asked := request.generation) is not None:
        tokens += (asked.max_tokens - 1) // asked.canvas_length * asked.canvas_length
    return pages_for(tokens, page_size)


def pages_needed(request: Request, page_size: int) -> int:
    """Pages a request holds from its first execution to its reply."""
    widths = [len(canvas.ids) for canvas in request.canvases]
    if request.generation is not None:
        widths.append(request.generation.canvas_length)
    scratch = sum(pages_for(width, page_size) for width in widths)
    return context_pages(request, page_size) + scratch
