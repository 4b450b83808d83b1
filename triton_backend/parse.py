"""Turns inputs into a valid request, or refuses them; needs no server to run.

Every rule about a request is here, so no later code checks again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from triton_backend import fields, options
from triton_backend.canvas_fields import read_canvas
from triton_backend.chat_fields import parse_messages
from triton_backend.core import Canvas, Request, RequestError
from triton_backend.denoise import Denoising
from triton_backend.fields import Inputs
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.generation_fields import read_denoising, read_generation
from triton_backend.limits import RequestLimits
from triton_backend.needs import least_need
from triton_backend.page_pool import pages_for
from triton_backend.questions import Question, QuestionError, build_read, parse_questions
from triton_backend.tokenizer import Tokenizer, TokenizerError

TENSOR_INPUTS = ("canvas_ids", "slots", "label_ids")
READS = ("questions", "slots", "label_ids")
PROMPTS = ("text_input", "input_ids", "messages")
INPUTS = (*PROMPTS, *TENSOR_INPUTS, "questions", "seed", *options.NAMES)
# Not ours, but put there by Triton's front ends and clients for their own ends.
FRONT_END_PARAMETERS = frozenset({"binary_data_output", "id"})
FRONT_END_PREFIX = "triton_"
DEFAULT_SEED = 0


@dataclass(frozen=True)
class Parsed:
    """A valid request, the questions it asks when it came as questions, and what it wants shown."""

    request: Request
    questions: tuple[Question, ...] = ()
    log_probs: bool = False


class Parser:
    """Makes requests within the limits; gives each a key of its own."""

    def __init__(
        self, limits: RequestLimits, tokenizer: Tokenizer, defaults: GenerationDefaults
    ) -> None:
        self._limits = limits
        self._tokenizer = tokenizer
        self._defaults = defaults
        self._keys = itertools.count()

    def parse(self, inputs: Inputs, parameters: Mapping[str, Any]) -> Parsed:
        """A request that can be served.

        Raises:
            RequestError: anything about it that is wrong; the first thing found.
        """
        _check_names(inputs, parameters)
        if not any(name in inputs for name in READS):
            parsed = self._generation(inputs)
        else:
            _check_read(inputs)
            parsed = self._questions(inputs) if "questions" in inputs else self._tensors(inputs)
        self._check_size(parsed.request, next(name for name in PROMPTS if name in inputs))
        return parsed

    def _generation(self, inputs: Inputs) -> Parsed:
        """A prompt to write on from."""
        prompt = self._prompt(inputs, raw=True)
        asked = read_generation(inputs, self._defaults, self._limits, len(prompt), _seed(inputs))
        request = Request(next(self._keys), prompt, generation=asked)
        return Parsed(request, log_probs=fields.flag(inputs, "return_log_probs"))

    def _questions(self, inputs: Inputs) -> Parsed:
        """The state and questions about it: the server builds prompt, canvas and slots."""
        for name in ("input_ids", "messages", *TENSOR_INPUTS):
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
        steps = self._steps(inputs)
        canvas = Canvas(plan.canvas_ids, plan.slots, plan.label_ids, columns, steps)
        return Parsed(Request(next(self._keys), plan.prompt_ids, (canvas,)), questions)

    def _tensors(self, inputs: Inputs) -> Parsed:
        """A prompt, and the very canvas to read."""
        missing = [name for name in TENSOR_INPUTS if name not in inputs]
        if missing:
            raise RequestError(
                missing[0], "is missing", f"a read needs {', '.join(TENSOR_INPUTS)}, or questions"
            )
        canvas = replace(read_canvas(inputs, self._limits), denoising=self._steps(inputs))
        return Parsed(Request(next(self._keys), self._prompt(inputs), (canvas,)))

    def _steps(self, inputs: Inputs) -> Denoising | None:
        """How a read's slots are denoised before they are read; a read has one step by default."""
        defaults = replace(self._defaults, max_denoising_steps=1)
        denoising = read_denoising(inputs, defaults, _seed(inputs))
        if denoising.max_steps > 1:
            return denoising
        for name in options.DENOISING:
            if name in inputs and name != "max_denoising_steps":
                why = "max_denoising_steps is 1, which denoises nothing"
                raise RequestError(name, "is given with a read", why)
        return None

    def _prompt(self, inputs: Inputs, raw: bool = False) -> tuple[int, ...]:
        """Prompt ids as they are (none at all is a prompt too), or those of a text behind bos.

        Control tokens are recognised in a raw text, which is a prompt as a template wrote it.
        """
        given = [name for name in PROMPTS if name in inputs]
        if len(given) != 1:
            names = " and ".join(given) or " and ".join(PROMPTS)
            said = "are both given" if given else "are all missing"
            raise RequestError(names, said, "exactly one is needed")
        if "messages" in inputs:
            return self._chat(inputs)
        if "text_input" in inputs:
            return self._text(inputs, raw)
        ids = fields.row_of_ids(inputs, "input_ids")
        most = self._limits.max_context
        if ids.size > most:
            raise RequestError("input_ids", f"has {ids.size} tokens", f"the limit is {most}")
        fields.check_below(ids, self._limits.vocab_size, "input_ids", "the vocabulary")
        return tuple(ids.tolist())

    def _text(self, inputs: Inputs, raw: bool) -> tuple[int, ...]:
        text = fields.text(inputs, "text_input", self._limits.max_text_bytes)
        encode = self._tokenizer.encode_control if raw else self._tokenizer.encode
        try:
            ids = encode(text)
        except TokenizerError as error:
            raise RequestError.saying(f"text_input: {error}") from error
        bos = self._limits.bos_id
        return ids if raw and ids[:1] == (bos,) else (bos, *ids)

    def _chat(self, inputs: Inputs) -> tuple[int, ...]:
        """A conversation as the checkpoint's template shows it."""
        messages = parse_messages(fields.text(inputs, "messages", self._limits.max_text_bytes))
        try:
            return self._tokenizer.render_chat(messages)
        except TokenizerError as error:
            raise RequestError.saying(f"messages: {error}") from error

    def _check_size(self, request: Request, name: str) -> None:
        limits, prompt = self._limits, len(request.prompt_ids)
        more, what = _longest(request)
        if prompt + more > limits.max_context:
            raise RequestError(
                f"{name} and {what}", f"have {prompt} + {more} tokens",
                f"the limit is {limits.max_context} together",
            )  # fmt: skip
        need, kv = least_need(request, limits.kv), limits.kv
        groups = ("", need.full, kv.full_pages), (" sliding", need.sliding, kv.sliding_pages)
        for group, pages, most in groups:
            if pages > most:
                mine = min(pages_for(prompt, kv.page_size), pages)
                raise RequestError(
                    f"{name} and {what}",
                    f"need {pages}{group} KV pages ({mine} for {prompt} tokens of prompt)",
                    f"the server has {most}",
                )


def _longest(request: Request) -> tuple[int, str]:
    """Tokens that follow the prompt at most, and what they are."""
    if request.generation is not None:
        return request.generation.max_tokens, "max_tokens"
    return max(len(canvas.ids) for canvas in request.canvases), "its canvas"


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
                f"known are the inputs {', '.join(INPUTS)}, and no parameters",
            )  # fmt: skip


def _check_read(inputs: Inputs) -> None:
    """Refuses what only a generation has, but for values that change nothing."""
    options.check_unused(inputs)
    for name in (*options.WRITING, *options.SHOWN):
        if name in inputs and not options.is_default(inputs, name):
            raise RequestError(name, "is given with a read", "it belongs to a generation")
