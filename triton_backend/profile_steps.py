"""Executions of so many rows of a phase, made by hand to be timed; nobody wants their answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from build_engine.contract import EngineContract
from plugins.spec import Phase
from triton_backend.accept import EntropyBound
from triton_backend.core import PROMPT, Segment, Step
from triton_backend.denoise import CanvasState, Denoising
from triton_backend.kv_cache import Pages
from triton_backend.page_pool import pages_for


@dataclass(frozen=True)
class Rows:
    """Rows by phase, those of reads apart from those that denoise; each segment is behind
    `context` positions."""

    prefill: int = 0
    commit: int = 0
    denoise: int = 0
    read: int = 0
    context: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.prefill + self.commit + self.denoise + self.read


class StepMaker:
    """Makes steps within an engine's limits; `pages` of each group do for the largest of them."""

    def __init__(self, contract: EngineContract) -> None:
        self._contract = contract
        limits = contract.limits
        self.canvas = min(contract.geometry.canvas_length, limits.max_canvas)
        self._slots = max(1, min(self.canvas, limits.max_output_rows // limits.max_segments, 4))
        self._denoising = Denoising(0, 1 << 20, 0.4, 0.8, EntropyBound(0.1), 1, 1e-9)
        self._next_page = 0

    def pages(self, rows: Rows) -> int:
        """Pages of either group that a step takes."""
        size = self._contract.page_size
        each = pages_for(rows.context + 1, size) + 1
        return sum(each + pages_for(count, size) for _, count in self._segments(rows))

    def fits(self, rows: Rows) -> bool:
        """Whether the engine takes such a step."""
        limits = self._contract.limits
        if not 0 < rows.total or rows.context >= limits.max_context:
            return False
        segments = self._segments(rows)
        reads = sum(1 for kind, _ in segments if kind == "read")
        return (
            rows.total <= limits.max_step_tokens
            and len(segments) <= limits.max_segments
            and reads * self._slots <= limits.max_output_rows
            and rows.context + max(count for _, count in segments) <= limits.max_context
        )

    @property
    def longest(self) -> int:
        """Positions that one request may have."""
        return self._contract.limits.max_context

    def read_rows(self, rows: Rows) -> int:
        """Slots that are read of so many rows of reads."""
        return self._slots * sum(1 for kind, _ in self._segments(rows) if kind == "read")

    def make(self, rows: Rows) -> Step:
        """The step."""
        self._next_page = 0
        made = (self._segment(*one, rows.context) for one in self._segments(rows))
        return Step(tuple(made))

    def _segments(self, rows: Rows) -> list[tuple[str, int]]:
        """Kinds and lengths: contexts as long as they may be, canvases of the model's own width."""
        longest = self._contract.limits.max_context - rows.context
        made: list[tuple[str, int]] = []
        for kind, most in (
            ("prefill", longest), ("commit", self.canvas), ("denoise", self.canvas),
            ("read", self.canvas),
        ):  # fmt: skip
            count = getattr(rows, kind)
            made += [(kind, min(most, count - at)) for at in range(0, count, most)]
        return made

    def _segment(self, kind: str, count: int, context: int) -> Segment:
        key, size, ids = self._next_page, self._contract.page_size, (self._contract.bos_id,) * count
        phase = {"prefill": Phase.PREFILL, "commit": Phase.COMMIT}.get(kind, Phase.DENOISE)
        pages = self._take(pages_for(context, size) + pages_for(count, size) + 1)
        if kind == "read":
            slots = tuple(range(min(self._slots, count)))
            labels = ((self._contract.pad_id,),) * len(slots)
            return Segment(key, 0, phase, ids, context, pages, slots, labels, 1)
        if kind == "denoise":
            pinned = np.zeros(count, np.bool_)
            state = CanvasState(np.array(ids, np.int64), pinned)
            return Segment(
                key, 0, phase, ids, context, pages, denoising=self._denoising, state=state
            )
        return Segment(key, PROMPT, phase, ids, context, pages)

    def _take(self, count: int) -> Pages:
        first, self._next_page = self._next_page, self._next_page + count
        pages = tuple(range(first, first + count))
        return Pages(pages, pages)
