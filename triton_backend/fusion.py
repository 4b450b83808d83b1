"""The rule of fusion: whether a canvas joins the execution that finishes its context.

Pages are no part of it: whether they are there is found out once a canvas fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_backend.core import SplitReason
from triton_backend.work import CanvasPart


@dataclass(frozen=True)
class StepLimits:
    """Largest sizes of one execution, and of the positions one request may have in it."""

    max_tokens: int
    max_segments: int
    max_output_rows: int
    max_context: int


@dataclass
class Room:
    """What an execution being filled can still take."""

    tokens: int
    segments: int
    output_rows: int

    @classmethod
    def of(cls, limits: StepLimits, budget: int = 0) -> Room:
        """All of an execution, or no more than a budget of its tokens."""
        tokens = min(budget or limits.max_tokens, limits.max_tokens)
        return cls(tokens, limits.max_segments, limits.max_output_rows)

    def fits(self, tokens: int, output_rows: int = 0, segments: int = 1) -> bool:
        """Whether one more segment of this size, or several, would fit; changes nothing."""
        enough = self.segments >= segments and output_rows <= self.output_rows
        return enough and tokens <= self.tokens

    def take(self, tokens: int, output_rows: int = 0) -> None:
        """Uses the room of one segment; ask `fits` first."""
        assert self.fits(tokens, output_rows), f"{tokens} rows do not fit {self}"
        self.tokens -= tokens
        self.segments -= 1
        self.output_rows -= output_rows


def split_reason(
    canvas: CanvasPart, own: int, positions: int, room: Room, limits: StepLimits, enabled: bool
) -> SplitReason | None:
    """Why a canvas cannot join the execution that finishes its context, or None when it can.

    `own` tokens of the prompt go with this canvas alone. `positions` are those of its request in
    this execution so far: the context's and those of the canvases taken before it; all of them
    together must stay within the limit.
    """
    tokens = own + len(canvas.token_ids)
    if not enabled:
        return SplitReason.DISABLED
    if positions + tokens > limits.max_context:
        return SplitReason.LENGTH
    if not room.fits(tokens, len(canvas.slots), 2 if own else 1):
        return SplitReason.BUDGET
    return None
