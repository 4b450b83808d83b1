"""How far one admitted request has come; changed by `record` alone.

Knows the request and its pages, not the queue, the budget or other requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from plugins.spec import Phase
from triton_backend.core import PROMPT, Reply, Request, RequestError, Segment, SplitReason
from triton_backend.page_pool import pages_for

if TYPE_CHECKING:
    from triton_backend.reads import ReadResult


@dataclass
class Progress:
    """An admitted request with all the pages it will ever need: its prompt's, then scratch pages.

    `computed` counts the prompt positions whose keys and values are there; `reads` is keyed by
    canvas.
    """

    request: Request
    page_size: int
    pages: tuple[int, ...]
    arrived: float
    computed: int = 0
    executions: int = 0
    split: SplitReason | None = None
    started: float | None = None
    execution_seconds: float = 0.0
    reads: dict[int, ReadResult] = field(default_factory=dict)
    error: RequestError | None = None

    @property
    def remaining(self) -> int:
        """Prompt tokens still to compute."""
        return len(self.request.prompt_ids) - self.computed

    @property
    def done(self) -> bool:
        return self.error is not None or len(self.reads) == len(self.request.canvases)

    def pending(self) -> Iterator[int]:
        """Canvases still to read, in order."""
        return (n for n in range(len(self.request.canvases)) if n not in self.reads)

    def prompt_segment(self, count: int) -> Segment:
        """The next `count` prompt tokens."""
        ids = self.request.prompt_ids[self.computed : self.computed + count]
        return Segment(self.request.key, PROMPT, Phase.PREFILL, ids, self.computed, self._prompt)

    def canvas_segment(self, index: int) -> Segment:
        """A canvas after the whole prompt, on scratch pages that no other canvas has."""
        canvas = self.request.canvases[index]
        first, last = list(pairwise(self._bounds()))[index]
        return Segment(
            key=self.request.key,
            canvas=index,
            phase=Phase.DENOISE,
            token_ids=canvas.ids,
            committed=len(self.request.prompt_ids),
            pages=self._prompt + self.pages[first:last],
            slots=canvas.slots,
            label_ids=canvas.label_ids,
            label_columns=canvas.label_columns,
        )

    def reply(self) -> Reply:
        """The final answer of a request that is done."""
        queued = 0.0 if self.started is None else self.started - self.arrived
        return Reply(
            request=self.request,
            reads=() if self.error else tuple(read for _, read in sorted(self.reads.items())),
            error=self.error,
            executions=self.executions,
            split=self.split,
            queue_seconds=queued,
            execution_seconds=self.execution_seconds,
        )

    @property
    def _prompt(self) -> tuple[int, ...]:
        return self.pages[: pages_for(len(self.request.prompt_ids), self.page_size)]

    def _bounds(self) -> Iterator[int]:
        prompt = pages_for(len(self.request.prompt_ids), self.page_size)
        widths = (pages_for(len(c.ids), self.page_size) for c in self.request.canvases)
        return accumulate(widths, initial=prompt)


def pages_needed(request: Request, page_size: int) -> int:
    """Pages a request holds from its first execution to its reply."""
    canvases = sum(pages_for(len(canvas.ids), page_size) for canvas in request.canvases)
    return pages_for(len(request.prompt_ids), page_size) + canvases
