"""The nouns of serving: what is asked, what one execution holds, what is answered.

Owns values only; knows no policy, no arrays, no engine and no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugins.spec import Phase

if TYPE_CHECKING:
    from triton_backend.reads import ReadResult

PROMPT = -1
"""`Segment.canvas` of a segment that holds prompt rows."""


class ErrorKind(Enum):
    """Whose fault a refusal is, for the server's status code."""

    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class RequestError(Exception):
    """One request cannot be served; the message names the field, its value and the limit."""

    def __init__(
        self, field: str, value: str, limit: str = "", kind: ErrorKind = ErrorKind.INVALID
    ) -> None:
        super().__init__(f"{field} {value}" + (f", {limit}" if limit else ""))
        self.kind = kind

    @classmethod
    def saying(cls, message: str) -> RequestError:
        """The client's fault, in words that name field, value and limit already."""
        error = cls("", "")
        error.args = (message,)
        return error


class SplitReason(Enum):
    """Why a canvas did not join the execution that finished its prompt."""

    BUDGET = "budget"
    LENGTH = "length"
    DISABLED = "disabled"


@dataclass(frozen=True)
class Canvas:
    """A seeded canvas and what is read from it.

    `label_ids` holds the labels of each slot without padding; `label_columns` is the width that
    the client gave its table of labels, and that it gets back.
    """

    ids: tuple[int, ...]
    slots: tuple[int, ...]
    label_ids: tuple[tuple[int, ...], ...]
    label_columns: int


@dataclass(frozen=True)
class Request:
    """A valid request; `key` is the server's own and unique, whatever the client calls it."""

    key: int
    prompt_ids: tuple[int, ...]
    canvases: tuple[Canvas, ...]


@dataclass(frozen=True)
class Segment:
    """Neighbouring rows of one request and one phase in an execution.

    `committed` counts the positions whose keys and values are there before it; `pages` is its row
    of the block table: the prompt's pages, and for a canvas its scratch pages after them.
    """

    key: int
    canvas: int
    phase: Phase
    token_ids: tuple[int, ...]
    committed: int
    pages: tuple[int, ...]
    slots: tuple[int, ...] = ()
    label_ids: tuple[tuple[int, ...], ...] = ()
    label_columns: int = 0


@dataclass(frozen=True)
class Step:
    """One execution, decided; `splits` names the requests whose canvases it leaves behind."""

    segments: tuple[Segment, ...]
    splits: tuple[tuple[int, SplitReason], ...] = ()


@dataclass(frozen=True)
class StepResult:
    """One execution, done: per segment its read, why it has none, or None for prompt rows."""

    reads: tuple[ReadResult | RequestError | None, ...]
    started: float
    seconds: float


@dataclass(frozen=True)
class Reply:
    """The one final answer to a request; `reads` has one entry per canvas unless `error` is set."""

    request: Request
    reads: tuple[ReadResult, ...] = ()
    error: RequestError | None = None
    executions: int = 0
    split: SplitReason | None = None
    queue_seconds: float = 0.0
    execution_seconds: float = 0.0

    @property
    def fusion(self) -> str:
        """How the canvas ran, as the client reads it."""
        return f"split: {self.split.value}" if self.split else "fused"
