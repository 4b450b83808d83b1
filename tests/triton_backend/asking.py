"""Requests for a generation, made of their inputs."""

from pathlib import Path

import numpy as np
import pytest

from triton_backend.core import Generation, RequestError
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.kv_cache import KvShape
from triton_backend.limits import RequestLimits
from triton_backend.parse import Parsed, Parser
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"
TOKENIZER = Tokenizer.load(CHECKPOINT)
VOCAB = TOKENIZER.vocab_size
LIMITS = RequestLimits(
    vocab_size=VOCAB, max_context=200, max_canvas=32, max_slots=6, max_labels=5,
    kv=KvShape(16, 0, 30, 30), bos_id=TOKENIZER.bos_id, stop_ids=frozenset({1, 5}),
    canvas_length=32,
)  # fmt: skip
PARSER = Parser(LIMITS, TOKENIZER, GenerationDefaults(max_new_tokens=64))


def ints(*values):
    return np.array(values, np.int32)


def real(value):
    return np.array([value], np.float32)


def flag(value):
    return np.array([value])


def strings(*values):
    return np.array(values, np.object_)


def parse(parser=PARSER, **inputs) -> Parsed:
    """A prompt of three tokens with these inputs added; None leaves one out."""
    made = {"input_ids": ints(5, 6, 7), **inputs}
    return parser.parse({name: value for name, value in made.items() if value is not None}, {})


def asked(**inputs) -> Generation:
    generation = parse(**inputs).request.generation
    assert generation is not None
    return generation


def refused(message, **inputs) -> None:
    """The same refusal, however often it is asked."""
    for _ in range(2):
        with pytest.raises(RequestError, match=message):
            parse(**inputs)
