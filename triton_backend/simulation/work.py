"""Work without numbers: canvases that are done after so many steps; keeps the shape of real work.

What it says of tokens is made up, how many there are is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from triton_backend.core import Piece, Request, Written
from triton_backend.work import CanvasPart

if TYPE_CHECKING:
    from triton_backend.denoise import CanvasState
    from triton_backend.reads import ReadResult

_LONGEST = 1 << 17
_BLANKS = (0,) * _LONGEST
_PARTS: dict[int, CanvasPart] = {}


def blanks(count: int) -> tuple[int, ...]:
    """So many token ids, all alike."""
    return _BLANKS[:count]


def part_of(width: int) -> CanvasPart:
    """The step of a canvas of so many rows; one for all."""
    if width not in _PARTS:
        _PARTS[width] = CanvasPart(blanks(width))
    return _PARTS[width]


class SimulatedWork:
    """`steps` of each canvas over `context_ids`; with `chained` ones each joins the context."""

    __slots__ = ("_chained", "_left", "_part", "_steps", "context_ids", "done", "effort", "request")

    def __init__(
        self,
        request: Request,
        context_ids: tuple[int, ...],
        width: int,
        steps: tuple[int, ...],
        chained: bool,
    ) -> None:
        self.request = request
        self.context_ids = context_ids
        self.done = False
        self.effort = 1.0
        self._part = part_of(width)
        self._steps = steps
        self._chained = chained
        # Canvases that are not done, and their steps so far.
        self._left = [(canvas, 0) for canvas in range(len(steps))]

    @property
    def share_done(self) -> float:
        """Of its canvases."""
        return 1 - len(self._left) / len(self._steps)

    @property
    def reads(self) -> tuple[ReadResult, ...]:
        return ()

    @property
    def written(self) -> Written | None:
        return None

    def wants(self, canvas: int) -> bool:
        return any(index == canvas for index, _ in self._left)

    def pending(self) -> Iterator[int]:
        return iter([index for index, _ in (self._left[:1] if self._chained else self._left)])

    def part(self, canvas: int) -> CanvasPart:
        assert canvas < len(self._steps), "there is no such canvas"
        return self._part

    def finish(self) -> None:
        """Nothing of it is wanted any more."""
        self.done = True

    def record(self, canvas: int, result: ReadResult | CanvasState) -> list[Piece]:
        del result  # There are no numbers in it.
        place = 0 if self._chained else self._place(canvas)
        steps = self._left[place][1] + 1
        if steps < self._steps[canvas] * self.effort:
            self._left[place] = canvas, steps
            return []
        del self._left[place]
        self.done = not self._left
        if self._chained and not self.done:
            self.context_ids += blanks(len(self._part.token_ids))
        return [Piece(self.request, canvas, steps, (), (), (), "")]

    def _place(self, canvas: int) -> int:
        return next(n for n, (index, _) in enumerate(self._left) if index == canvas)
