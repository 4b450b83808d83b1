"""Turns the inputs of a read into a valid request, or refuses them; needs no server to run.

Every rule about a request is here, so no later code checks again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_backend import fields
from triton_backend.canvas_fields import read_canvas
from triton_backend.core import Canvas, Request, RequestError
from triton_backend.fields import Inputs
from triton_backend.limits import RequestLimits
from triton_backend.page_pool import pages_for
from triton_backend.progress import pages_needed
from triton_backend.questions import Question, QuestionError, build_read, parse_questions
from triton_backend.tokenizer import Tokenizer, TokenizerError

TENSOR_INPUTS = ("canvas_ids", "slots", "label_ids")
INPUTS = ("text_input", "input_ids", *TENSOR_INPUTS, "questions", "seed")
# Not ours, but put there by Triton's front ends and clients for their own ends.
FRONT_END_PARAMETERS = frozenset({"binary_data_output", "id"})
FRONT_END_PREFIX = "triton_"
DEFAULT_SEED = 0


@dataclass(frozen=True)
class ParsedRead:
    """A valid request, and the questions it asks when it came as questions."""

    request: Request
    questions: tuple[Question, ...] = ()


class Parser:
    """Makes requests within the limits; gives each a key of its own."""

    def __init__(self, limits: RequestLimits, tokenizer: Tokenizer) -> None:
        self._limits = limits
        self._tokenizer = tokenizer
        self._keys = itertools.count()

    def parse(self, inputs: Inputs, parameters: Mapping[str, Any]) -> ParsedRead:
        """A request that can be served.

        Raises:
            RequestError: anything about it that is wrong; the first thing found.
        """
        _check_names(inputs, parameters)
        if "questions" in inputs:
            parsed = self._questions(inputs)
        else:
            parsed = ParsedRead(self._tensors(inputs))
        self._check_size(parsed.request, "text_input" if "text_input" in inputs else "input_ids")
        return parsed

    def _questions(self, inputs: Inputs) -> ParsedRead:
        """The state and questions about it: the server builds prompt, canvas and slots."""
        for name in ("input_ids", *TENSOR_INPUTS):
            if name in inputs:
                raise RequestError(name, "is given with questions", "they build their own")
        if "text_input" not in inputs:
            raise RequestError("text_input", "is missing", "questions are about a state")
        state = fields.text(inputs, "text_input", self._limits.max_text_bytes)
        if not state.strip():
            raise RequestError("text_input", "is empty", "a state needs 1 visible character")
        asked = fields.text(inputs, "questions", self._limits.max_text_bytes)
        try:
            questions = parse_questions(asked)
            plan = build_read(
                self._tokenizer, state, questions, self._limits.max_canvas, _seed(inputs)
            )
        except (QuestionError, TokenizerError) as error:
            raise RequestError.saying(str(error)) from error
        columns = max(len(ids) for ids in plan.label_ids)
        canvas = Canvas(plan.canvas_ids, plan.slots, plan.label_ids, columns)
        return ParsedRead(Request(next(self._keys), plan.prompt_ids, (canvas,)), questions)

    def _tensors(self, inputs: Inputs) -> Request:
        """A prompt, and the very canvas to read."""
        missing = [name for name in TENSOR_INPUTS if name not in inputs]
        if missing:
            raise RequestError(
                missing[0], "is missing", f"a read needs {', '.join(TENSOR_INPUTS)}, or questions"
            )
        _seed(inputs)
        prompt = self._prompt(inputs)
        return Request(next(self._keys), prompt, (read_canvas(inputs, self._limits),))

    def _prompt(self, inputs: Inputs) -> tuple[int, ...]:
        """Prompt ids as they are (none at all is a prompt too), or those of a text behind bos."""
        if ("text_input" in inputs) == ("input_ids" in inputs):
            given = "are both given" if "text_input" in inputs else "are both missing"
            raise RequestError("text_input and input_ids", given, "exactly one is needed")
        if "text_input" in inputs:
            text = fields.text(inputs, "text_input", self._limits.max_text_bytes)
            return (self._limits.bos_id, *self._encode(text))
        ids = fields.row_of_ids(inputs, "input_ids")
        most = self._limits.max_context
        if ids.size > most:
            raise RequestError("input_ids", f"has {ids.size} tokens", f"the limit is {most}")
        fields.check_below(ids, self._limits.vocab_size, "input_ids", "the vocabulary")
        return tuple(ids.tolist())

    def _encode(self, text: str) -> tuple[int, ...]:
        try:
            return self._tokenizer.encode(text)
        except TokenizerError as error:
            raise RequestError.saying(f"text_input: {error}") from error

    def _check_size(self, request: Request, name: str) -> None:
        limits, prompt = self._limits, len(request.prompt_ids)
        width = max(len(canvas.ids) for canvas in request.canvases)
        if prompt + width > limits.max_context:
            raise RequestError(
                f"{name} and its canvas", f"have {prompt} + {width} tokens",
                f"the limit is {limits.max_context} together",
            )  # fmt: skip
        pages = pages_needed(request, limits.page_size)
        if pages > limits.pages:
            raise RequestError(
                f"{name} and its canvas",
                f"need {pages} KV pages ({pages_for(prompt, limits.page_size)} for {prompt} tokens "
                "of prompt)",
                f"the server has {limits.pages}",
            )


def _seed(inputs: Inputs) -> int:
    return fields.whole_number(inputs, "seed") if "seed" in inputs else DEFAULT_SEED


def _check_names(inputs: Inputs, parameters: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in INPUTS:
            raise RequestError(name, "is not an input", f"known are {', '.join(INPUTS)}")
    for name in parameters:
        if name not in FRONT_END_PARAMETERS and not name.startswith(FRONT_END_PREFIX):
            raise RequestError(
                f"parameter {name!r}", "is not known",
                f"a read takes the inputs {', '.join(INPUTS)} and no parameters",
            )  # fmt: skip
