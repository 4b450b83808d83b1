"""Turns inputs into a valid request, or refuses them; needs no server to run.

Every rule about a request is here, so no later code checks again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton_backend import fields, options, request_fields
from triton_backend.canvas_fields import FAN_OUT, read_canvases
from triton_backend.chat_fields import parse_messages
from triton_backend.core import Canvas, Request, RequestError
from triton_backend.denoise import Denoising
from triton_backend.fields import Inputs
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.generation_fields import read_denoising, read_generation
from triton_backend.limits import RequestLimits
from triton_backend.question_fields import read_questions
from triton_backend.questions import Question
from triton_backend.request_fields import Treatment, read_treatment, with_parameters
from triton_backend.sizes import check_size
from triton_backend.tokenizer import Tokenizer, TokenizerError

TENSOR_INPUTS = ("canvas_ids", "slots", "label_ids")
READS = ("questions", "slots", "label_ids")
PROMPTS = ("text_input", "input_ids", "messages")
INPUTS = (
    *PROMPTS, *TENSOR_INPUTS, *FAN_OUT, "questions", "isolation", "seed", *request_fields.NAMES,
    *options.NAMES,
)  # fmt: skip
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
    treatment: Treatment = field(default_factory=Treatment)


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
        inputs = with_parameters(inputs, parameters)
        treatment = read_treatment(inputs)
        if not any(name in inputs for name in READS):
            parsed = self._generation(inputs)
        else:
            _check_read(inputs)
            parsed = self._questions(inputs) if "questions" in inputs else self._tensors(inputs)
        self._check_size(parsed.request, next(name for name in PROMPTS if name in inputs))
        return _treated(parsed, treatment)

    def _generation(self, inputs: Inputs) -> Parsed:
        """A prompt to write on from."""
        for name in ("isolation", *FAN_OUT):
            if name in inputs:
                raise RequestError(name, "is given without slots or questions", "it is a read's")
        prompt = self._prompt(inputs, raw=True)
        asked = read_generation(inputs, self._defaults, self._limits, len(prompt), _seed(inputs))
        request = Request(next(self._keys), prompt, generation=asked)
        return Parsed(request, log_probs=fields.flag(inputs, "return_log_probs"))

    def _questions(self, inputs: Inputs) -> Parsed:
        """The state and questions about it: the server builds prompt, canvases and slots."""
        for name in ("input_ids", "messages", *TENSOR_INPUTS, *FAN_OUT):
            if name in inputs:
                raise RequestError(name, "is given with questions", "they build their own")
        made = read_questions(inputs, self._tokenizer, self._limits, _seed(inputs))
        canvases = self._denoised(inputs, made.canvases)
        return Parsed(Request(next(self._keys), made.prompt_ids, canvases), made.questions)

    def _tensors(self, inputs: Inputs) -> Parsed:
        """A prompt, and the very canvas to read."""
        missing = [name for name in TENSOR_INPUTS if name not in inputs]
        if missing:
            raise RequestError(
                missing[0], "is missing", f"a read needs {', '.join(TENSOR_INPUTS)}, or questions"
            )
        if "isolation" in inputs:
            raise RequestError("isolation", "is given without questions", "canvases are isolated")
        canvases = self._denoised(inputs, read_canvases(inputs, self._limits))
        return Parsed(Request(next(self._keys), self._prompt(inputs), canvases))

    def _denoised(self, inputs: Inputs, canvases: tuple[Canvas, ...]) -> tuple[Canvas, ...]:
        steps = self._steps(inputs)
        return tuple(replace(canvas, denoising=steps) for canvas in canvases)

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
        check_size(request, name, self._limits)


def _seed(inputs: Inputs) -> int:
    return fields.whole_number(inputs, "seed") if "seed" in inputs else DEFAULT_SEED


def _treated(parsed: Parsed, asked: Treatment) -> Parsed:
    request = replace(
        parsed.request, priority=asked.priority, tenant=asked.tenant, salt=asked.salt,
        queue_timeout=asked.queue_timeout,
    )  # fmt: skip
    return replace(parsed, request=request, treatment=asked)


def _check_names(inputs: Inputs, parameters: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in INPUTS:
            raise RequestError(name, "is not an input", f"known are {', '.join(INPUTS)}")
    known = (*request_fields.NAMES, request_fields.TIMEOUT)
    for name in parameters:
        if name in known or name in FRONT_END_PARAMETERS or name.startswith(FRONT_END_PREFIX):
            continue
        raise RequestError(
            f"parameter {name!r}", "is not known",
            f"known are the parameters {', '.join(known)}, and the inputs {', '.join(INPUTS)}",
        )  # fmt: skip


def _check_read(inputs: Inputs) -> None:
    """Refuses what only a generation has, but for values that change nothing."""
    options.check_unused(inputs)
    for name in (*options.WRITING, *options.SHOWN):
        if name in inputs and not options.is_default(inputs, name):
            raise RequestError(name, "is given with a read", "it belongs to a generation")
