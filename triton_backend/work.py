"""What a request wants computed once its prompt is there; two kinds of it behave alike here.

Knows one request; not its pages, the queue or other requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from triton_backend.core import Piece, Written

if TYPE_CHECKING:
    from triton_backend.denoise import CanvasState, Denoising
    from triton_backend.reads import ReadResult


class CanvasPart(NamedTuple):
    """A canvas's next step: its rows, and which head they go through."""

    token_ids: Sequence[int]
    slots: tuple[int, ...] = ()
    label_ids: tuple[tuple[int, ...], ...] = ()
    label_columns: int = 0
    denoising: Denoising | None = None
    state: CanvasState | None = None


class Work(Protocol):
    """Canvases over a context; `record` alone changes it."""

    effort: float
    """Share of the asked denoising steps that its canvases get from now on."""

    @property
    def share_done(self) -> float:
        """How much of it is done, 0 to 1; its order among others is all that counts."""
        ...

    @property
    def context_ids(self) -> tuple[int, ...]:
        """The tokens whose keys and values every pending canvas needs; it may grow."""

    @property
    def done(self) -> bool: ...

    @property
    def reads(self) -> tuple[ReadResult, ...]: ...

    @property
    def written(self) -> Written | None: ...

    def wants(self, canvas: int) -> bool:
        """Whether a canvas has steps to come."""
        ...

    def pending(self) -> Iterator[int]:
        """Canvases that can run now, in order, all over the same context."""
        ...

    def part(self, canvas: int) -> CanvasPart: ...

    def record(self, canvas: int, result: ReadResult | CanvasState) -> list[Piece]:
        """Takes in the result of a canvas's step; what can be told the client because of it."""
        ...
