"""The work of a read: each canvas one step, or some denoising steps and then one that reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from triton_backend.core import Canvas, Piece, Request, Written
from triton_backend.denoise import CanvasState
from triton_backend.work import CanvasPart

if TYPE_CHECKING:
    from triton_backend.reads import ReadResult


@dataclass
class Reading:
    """The canvases of one request over its prompt; `found` and `states` are keyed by canvas."""

    request: Request
    found: dict[int, ReadResult] = field(default_factory=dict)
    states: dict[int, CanvasState] = field(default_factory=dict)
    effort: float = 1.0

    @property
    def share_done(self) -> float:
        return len(self.found) / len(self.request.canvases)

    @property
    def context_ids(self) -> tuple[int, ...]:
        return self.request.prompt_ids

    @property
    def done(self) -> bool:
        return len(self.found) == len(self.request.canvases)

    @property
    def reads(self) -> tuple[ReadResult, ...]:
        return tuple(read for _, read in sorted(self.found.items()))

    @property
    def written(self) -> Written | None:
        return None

    def wants(self, canvas: int) -> bool:
        return canvas not in self.found

    def pending(self) -> Iterator[int]:
        return (n for n in range(len(self.request.canvases)) if n not in self.found)

    def part(self, canvas: int) -> CanvasPart:
        asked = self.request.canvases[canvas]
        state = self.states.get(canvas)
        denoising = asked.denoising
        if denoising is None or (state and state.steps == denoising.max_steps - 1):
            ids = asked.ids if state is None else tuple(state.ids.tolist())
            return CanvasPart(ids, asked.slots, asked.label_ids, asked.label_columns, state=state)
        state = state or _first_state(asked)
        return CanvasPart(tuple(state.ids.tolist()), denoising=denoising, state=state)

    def record(self, canvas: int, result: ReadResult | CanvasState) -> list[Piece]:
        if isinstance(result, CanvasState):
            self.states[canvas] = result
        else:
            self.found[canvas] = result
        return []


def _first_state(canvas: Canvas) -> CanvasState:
    pinned = np.ones(len(canvas.ids), np.bool_)
    pinned[list(canvas.slots)] = False
    return CanvasState(np.array(canvas.ids, np.int64), pinned)
