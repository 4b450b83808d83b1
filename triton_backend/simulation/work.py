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

    __slots__ = ("_chained", "_left", "_part", "_steps", "context_ids", "done", "request")

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
        self._part = part_of(width)
        self._steps = steps
        self._chained = chained
        # By canvas: steps to come.
        self._left = list(enumerate(steps))

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

    def part(self, _: int) -> CanvasPart:
        return self._part

    def finish(self) -> None:
        """Nothing of it is wanted any more."""
        self.done = True

    def record(self, canvas: int, _: ReadResult | CanvasState) -> list[Piece]:
        place = 0 if self._chained else self._place(canvas)
        index, left = self._left[place]
        if left > 1:
            self._left[place] = index, left - 1
            return []
        del self._left[place]
        self.done = not self._left
        if self._chained and not self.done:
            self.context_ids += blanks(len(self._part.token_ids))
        return [Piece(self.request, canvas, self._steps[canvas], (), (), (), "")]

    def _place(self, canvas: int) -> int:
        return next(n for n, (index, _) in enumerate(self._left) if index == canvas)
