"""The work of a generation: one canvas at a time, denoised until it stops, then committed.

Committing is not a step of its own: a finished canvas joins the context, whose new tokens are
encoded like the last chunk of a prompt, in the same execution as the next canvas's first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from triton_backend.core import FinishReason, Generation, Piece, Request, Written
from triton_backend.denoise import CanvasState, new_canvas
from triton_backend.transcript import Decode, Transcript
from triton_backend.work import CanvasPart

if TYPE_CHECKING:
    from triton_backend.reads import ReadResult


class Writing:
    """One generation under way; `max_context` is the engine's."""

    def __init__(self, request: Request, decode: Decode, vocab_size: int, max_context: int) -> None:
        assert request.generation is not None
        self.request = request
        self.generation: Generation = request.generation
        self._decode = decode
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._transcript = Transcript(decode, self.generation.stop_words)
        self._context_ids = request.prompt_ids
        self._log_probs: list[float] = []
        self._steps: list[int] = []
        self._finish: FinishReason | None = None
        self._state = self._new_canvas()
        self.effort = self._least_effort = 1.0

    @property
    def share_done(self) -> float:
        return len(self._transcript.token_ids) / self.generation.max_tokens

    @property
    def context_ids(self) -> tuple[int, ...]:
        return self._context_ids

    @property
    def done(self) -> bool:
        return self._finish is not None

    @property
    def reads(self) -> tuple[ReadResult, ...]:
        return ()

    @property
    def written(self) -> Written | None:
        if self._finish is None:
            return None
        ids = self._transcript.token_ids
        log_probs = tuple(self._log_probs[: len(ids)])
        return Written(
            ids,
            log_probs,
            self._transcript.text,
            self._finish,
            tuple(self._steps),
            self._least_effort,
        )

    def wants(self, canvas: int) -> bool:
        return not self.done and canvas == len(self._steps)

    def pending(self) -> Iterator[int]:
        return iter(() if self.done else (len(self._steps),))

    def part(self, canvas: int) -> CanvasPart:
        assert canvas == len(self._steps), "canvases are written in order"
        ids: Any = self._state.ids  # an array is as good as a tuple here, and takes no time
        denoising = self.generation.denoising.eased(self.effort)
        return CanvasPart(ids, denoising=denoising, state=self._state)

    def record(self, canvas: int, result: ReadResult | CanvasState) -> list[Piece]:
        assert isinstance(result, CanvasState), "a generation has no slots to read"
        self._state = result
        self._least_effort = min(self._least_effort, self.effort)
        pieces = [self._draft(canvas, result)] if self.generation.drafts else []
        return [*pieces, self._finish_canvas(canvas, result)] if result.finished else pieces

    def _finish_canvas(self, canvas: int, state: CanvasState) -> Piece:
        assert state.argmax is not None
        assert state.log_probs is not None
        kept, reason = self._kept(state.argmax.tolist())
        before = len(self._transcript.token_ids)
        text = self._transcript.extend(state.argmax[:kept].tolist())
        if self._transcript.ended:
            kept, reason = len(self._transcript.token_ids) - before, FinishReason.STOP
        self._steps.append(state.steps)
        self._log_probs += state.log_probs[:kept].tolist()
        if reason is None:
            self._context_ids += tuple(state.argmax.tolist())
            self._state = self._new_canvas()
        else:
            text += self._transcript.close()
            self._finish = reason
        return self._piece(canvas, state, kept, text)

    def _kept(self, ids: list[int]) -> tuple[int, FinishReason | None]:
        """How many tokens of a finished canvas are the client's, and why it ends there if so."""
        left = self.generation.max_tokens - len(self._transcript.token_ids)
        stop = next((n for n, token in enumerate(ids) if token in self.generation.stop_ids), None)
        if stop is not None and stop <= left:
            return stop, FinishReason.STOP
        if left <= len(ids) or not self._room(len(ids)):
            return min(left, len(ids)), FinishReason.LENGTH
        return len(ids), None

    def _room(self, more: int) -> int:
        """Positions left in the context after `more` further tokens."""
        return self._max_context - len(self._context_ids) - more

    def _new_canvas(self) -> CanvasState:
        """The next canvas, shorter where the context ends; only the first has given tokens."""
        start = len(self._context_ids)
        width = min(self.generation.canvas_length, self._room(0))
        first = not self._steps
        return new_canvas(
            self.generation.denoising,
            np.arange(start, start + width),
            self._vocab_size,
            self.generation.start_ids if first else (),
            self.generation.pinned if first else (),
        )

    def _draft(self, canvas: int, state: CanvasState) -> Piece:
        assert state.argmax is not None
        kept, _ = self._kept(state.argmax.tolist())
        text = self._decode(state.argmax[:kept].tolist())
        return self._piece(canvas, state, kept, text, draft=True)

    def _piece(
        self, canvas: int, state: CanvasState, kept: int, text: str, draft: bool = False
    ) -> Piece:
        assert state.argmax is not None
        assert state.log_probs is not None
        assert state.entropy is not None
        return Piece(
            request=self.request,
            canvas=canvas,
            step=state.steps,
            token_ids=tuple(state.argmax[:kept].tolist()),
            log_probs=tuple(state.log_probs[:kept].tolist()),
            entropy=tuple(state.entropy.tolist()),
            text=text,
            draft=draft,
        )
