"""The nouns of serving: what is asked, what one execution holds, what is answered.

Owns values only; knows no policy, no arrays, no engine and no server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from plugins.spec import Phase

if TYPE_CHECKING:
    from triton_backend.denoise import CanvasState, Denoising
    from triton_backend.kv_cache import Pages
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
    PAGES = "pages"


@dataclass(frozen=True)
class Canvas:
    """A seeded canvas and what is read from it.

    `label_ids` holds the labels of each slot without padding; `label_columns` is the width that
    the client gave its table of labels, and that it gets back. With `denoising`, all but the last
    of its steps denoise the slots first, everything else pinned; the last step reads. `prompt_ids`
    follow the request's prompt for this canvas alone, as the text of its question.
    """

    ids: tuple[int, ...]
    slots: tuple[int, ...]
    label_ids: tuple[tuple[int, ...], ...]
    label_columns: int
    denoising: Denoising | None = None
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Generation:
    """Text to be written, canvas after canvas.

    `start_ids` open the first canvas, noise behind them; `pinned` are its positions that keep
    their given token. The text ends before the first stop id, the first of the stop words, or
    after `max_tokens`. `effort_floor` is the least share of its denoising steps that it may be
    held to when the server is overloaded.
    """

    max_tokens: int
    canvas_length: int
    denoising: Denoising
    stop_ids: frozenset[int]
    stop_words: tuple[str, ...] = ()
    start_ids: tuple[int, ...] = ()
    pinned: tuple[int, ...] = ()
    stream: bool = False
    drafts: bool = False
    effort_floor: float = 0.0


@dataclass(frozen=True)
class Request:
    """A valid request; `key` is the server's own and unique, whatever the client calls it.

    It asks for the reads of its canvases or for a generation, never for both. Whoever has a lower
    `priority` goes first; prompts are shared between requests of the same `salt`; `queue_timeout`
    in seconds, 0 for the server's own.
    """

    key: int
    prompt_ids: tuple[int, ...]
    canvases: tuple[Canvas, ...] = ()
    generation: Generation | None = None
    priority: int = 0
    tenant: str = ""
    salt: str = ""
    queue_timeout: float = 0.0


class Segment(NamedTuple):
    """Neighbouring rows of one request and one phase in an execution.

    `canvas` is PROMPT for rows of the request's context; else they are the canvas's, or of its own
    part of the prompt. `committed` counts the positions whose keys and values are there before it;
    `pages` are its rows of the block tables: the context's pages, and for a canvas its scratch
    pages after them. A canvas in the middle of its denoising has its `state` with it, which its
    tokens are part of.
    """

    key: int
    canvas: int
    phase: Phase
    token_ids: Sequence[int]
    committed: int
    pages: Pages
    slots: tuple[int, ...] = ()
    label_ids: tuple[tuple[int, ...], ...] = ()
    label_columns: int = 0
    denoising: Denoising | None = None
    state: CanvasState | None = None

    @property
    def denoises(self) -> bool:
        """Whether its rows go through the denoise head; else its slots, if any, are read."""
        return self.denoising is not None


class Transfer(NamedTuple):
    """A page of one KV group and the slot of host memory that it is copied to, or from."""

    sliding: bool
    page: int
    slot: int


@dataclass(frozen=True)
class Step:
    """One execution, decided; `splits` names the requests whose canvases it leaves behind.

    Before it, pages are copied to host memory as `saves` say, then back as `loads` say.
    """

    segments: tuple[Segment, ...]
    splits: tuple[tuple[int, SplitReason], ...] = ()
    saves: tuple[Transfer, ...] = ()
    loads: tuple[Transfer, ...] = ()


@dataclass(frozen=True)
class StepResult:
    """One execution, done: per segment its read, its canvas after the step, why there is
    neither, or None for prompt rows."""

    results: tuple[ReadResult | CanvasState | RequestError | None, ...]
    started: float
    seconds: float


class FinishReason(Enum):
    """Why a generation ended, as the client reads it."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class Piece:
    """Part of a generation: a finished canvas's tokens, or a draft of them after one step.

    `text` continues the texts before it; a draft's text is that of its canvas alone.
    """

    request: Request
    canvas: int
    step: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    entropy: tuple[float, ...]
    text: str
    draft: bool = False


@dataclass(frozen=True)
class Written:
    """A whole generation; `steps` counts the denoising steps of each canvas.

    `effort` is the least share of the asked steps that it was held to, 1 if the server was not
    overloaded.
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    steps: tuple[int, ...]
    effort: float = 1.0


@dataclass
class Timing:
    """Seconds of one request: until its first execution, short of pages, in executions that
    encoded its context, and in those that denoised or read its canvases (fused ones are both's)."""

    queue: float = 0.0
    kv_wait: float = 0.0
    prefill: float = 0.0
    denoise: float = 0.0
    execution: float = 0.0


@dataclass(frozen=True)
class Reply:
    """The one final answer to a request; `reads` has one entry per canvas unless `error` is set.

    `made` is when, on the monotonic clock.
    """

    request: Request
    reads: tuple[ReadResult, ...] = ()
    written: Written | None = None
    error: RequestError | None = None
    executions: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    split: SplitReason | None = None
    timing: Timing = field(default_factory=Timing)
    made: float = field(default_factory=time.monotonic, compare=False)

    @property
    def fusion(self) -> str:
        """How the canvas ran, as the client reads it."""
        return f"split: {self.split.value}" if self.split else "fused"
