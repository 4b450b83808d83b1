"""A read is valid or refused with field, value and limit; what is stated to be served is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_backend.accept import ConfidenceFactor
from triton_backend.core import RequestError
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.kv_cache import KvShape
from triton_backend.limits import RequestLimits
from triton_backend.options import NEUTRAL, REFUSED
from triton_backend.parse import Parser
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"
TOKENIZER = Tokenizer.load(CHECKPOINT)
VOCAB = TOKENIZER.vocab_size
LIMITS = RequestLimits(
    vocab_size=VOCAB, max_context=200, max_canvas=32, max_slots=6, max_labels=5,
    kv=KvShape(16, 0, 14, 14), bos_id=TOKENIZER.bos_id, stop_ids=frozenset({1, 5}),
    canvas_length=32,
)  # fmt: skip
PARSER = Parser(LIMITS, TOKENIZER, GenerationDefaults())
QUESTIONS = '{"again": {"type": "noul", "instructions": "Will the customer write again?"}}'


def ints(*values):
    return np.array(values, np.int32)


def text(value):
    return np.array([value], np.object_)


def inputs(**changes):
    """A valid tensor-level read with some inputs changed; None leaves one out."""
    made = {
        "input_ids": ints(5, 6, 7),
        "canvas_ids": ints(1, 2, 3, 4),
        "slots": ints(2, 0),
        "label_ids": np.array([[9, 8, 7], [5, -1, -1]], np.int32),
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def questions(**changes):
    empty = dict.fromkeys(("input_ids", "canvas_ids", "slots", "label_ids"))
    asked = {"text_input": text(b"The app crashes."), "questions": text(QUESTIONS.encode())}
    return inputs(**{**empty, **asked, **changes})


def parse(made, **parameters):
    return PARSER.parse(made, parameters)


def test_tensors_become_a_request():
    request = parse(inputs()).request
    canvas = request.canvases[0]
    assert request.prompt_ids == (5, 6, 7)
    assert (canvas.ids, canvas.slots) == ((1, 2, 3, 4), (2, 0))
    assert canvas.label_ids == ((9, 8, 7), (5,))
    assert canvas.label_columns == 3


def test_every_request_has_a_key_of_its_own():
    assert len({parse(inputs()).request.key for _ in range(10)}) == 10


def test_rows_may_come_with_a_leading_axis_of_one():
    made = inputs(input_ids=ints(5, 6).reshape(1, 2), slots=ints(2, 0).reshape(1, 2))
    assert parse(made).request.prompt_ids == (5, 6)


def test_a_prompt_of_no_tokens_is_served():
    assert parse(inputs(input_ids=ints())).request.prompt_ids == ()


@pytest.mark.parametrize("written", [b"", b"   ", "안녕".encode(), b"<bos><turn|>\x00\x07"])
def test_raw_text_is_served_behind_bos_and_never_becomes_control_ids(written):
    prompt = parse(inputs(input_ids=None, text_input=text(written))).request.prompt_ids
    assert prompt == (TOKENIZER.bos_id, *TOKENIZER.encode(written.decode()))
    control = {i for mark in ("<bos>", "<turn|>") for i in TOKENIZER.encode_control(mark)}
    assert not control & set(prompt[1:])


def test_text_may_come_in_any_shape_of_one_element():
    made = inputs(input_ids=None, text_input=np.array([["hello"]], np.object_))
    assert parse(made).request.prompt_ids[1:] == TOKENIZER.encode("hello")


def test_questions_build_prompt_canvas_and_slots():
    parsed = parse(questions())
    assert [question.id for question in parsed.questions] == ["again"]
    canvas = parsed.request.canvases[0]
    assert len(canvas.ids) % 16 == 0
    assert [len(ids) for ids in canvas.label_ids] == [2]


def test_a_seed_draws_the_noise_and_the_default_is_zero():
    def canvas(**seed):
        return parse(questions(**seed)).request.canvases[0].ids

    assert canvas() == canvas(seed=np.array([0], np.uint64))
    assert canvas() != canvas(seed=np.array([2**64 - 1], np.uint64))


GENERATION_ONLY = {
    "max_tokens": ints(3),
    "canvas_length": ints(8),
    "stream": np.array([True]),
    "stop_words": text(b"x"),
    "temperature": np.array([0.7]),
    "pinned": ints(0),
    "effort_floor": np.array([0.5]),
    "return_log_probs": np.array([True]),
    "return_drafts": np.array([True]),
}


@pytest.mark.parametrize("name", GENERATION_ONLY)
def test_what_only_a_generation_has_is_refused_with_a_read(name):
    for made in (inputs(), questions()):
        with pytest.raises(RequestError, match=f"{name} is given with a read, it belongs to a gen"):
            parse({**made, name: GENERATION_ONLY[name]})


NEUTRAL_WITH_A_READ = {
    **{name: np.array([values[0]], np.float32) for name, (values, _) in NEUTRAL.items()},
    **{name: text(b"") for name in REFUSED},
    **{name: np.array([False]) for name in ("stream", "return_log_probs", "return_drafts")},
    "exclude_input_in_output": np.array([True]),
    "stop_words": text(b""),
    "temperature": np.array([1], np.float32),
}


@pytest.mark.parametrize("name", NEUTRAL_WITH_A_READ)
def test_what_changes_nothing_is_accepted_with_a_read(name):
    for made in (inputs(), questions()):
        plain, given = parse(made), parse({**made, name: NEUTRAL_WITH_A_READ[name]})
        assert replace(given.request, key=0) == replace(plain.request, key=0)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"top_k": ints(5)}, "top_k is 5, only 0 or -1 is possible"),
        ({"bad_words": text(b"x")}, "bad_words is given, "),
        ({"temperature": np.array([np.nan])}, "temperature is nan, allowed are"),
        ({"stream": ints(0)}, "stream is int32, a boolean is needed"),
        ({"max_denoising_steps": ints(0)}, "max_denoising_steps is 0, allowed are"),
        ({"t_max": np.array([np.inf])}, "t_max is inf, allowed are"),
    ],
)
def test_what_no_request_can_have_is_refused_with_a_read_too(extra, message):
    for made in (inputs(), questions()):
        with pytest.raises(RequestError, match=message):
            parse({**made, **extra})


def test_a_read_of_several_steps_denoises_its_canvas_first():
    steps = {"max_denoising_steps": ints(4), "accept_factor": np.array([1.5], np.float32)}
    for made in (inputs(), questions()):
        seed = {"seed": np.array([9], np.uint64)}
        denoising = parse({**made, **steps, **seed}).request.canvases[0].denoising
        assert (denoising.max_steps, denoising.seed, denoising.greedy) == (4, 9, False)
        assert (denoising.t_min, denoising.t_max) == (0.4, 0.8)
        assert denoising.rule == ConfidenceFactor(1.5)


def test_a_read_has_one_step_unless_it_asks_for_more():
    for made in (inputs(), questions()):
        for steps in ({}, {"max_denoising_steps": ints(1)}):
            assert parse({**made, **steps}).request.canvases[0].denoising is None


def test_messages_may_be_what_a_canvas_is_read_over():
    messages = text(b'[{"role": "user", "content": "hi"}]')
    prompt = parse(inputs(input_ids=None, messages=messages)).request.prompt_ids
    assert prompt == TOKENIZER.render_chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("name", ["triton_enable_empty_final_response", "binary_data_output", "id"])
def test_what_front_ends_add_is_passed_over(name):
    parse(inputs(), **{name: True})


BAD = [
    (inputs(canvas_ids=ints(*[1] * 33)), "canvas_ids has 33 tokens, allowed are 1 to 32"),
    (inputs(canvas_ids=ints()), "canvas_ids has 0 tokens, allowed are 1 to 32"),
    (inputs(input_ids=ints(*[1] * 201)), "input_ids has 201 tokens, the limit is 200"),
    (inputs(input_ids=ints(*[1] * 197)), "197 \\+ 4 tokens, the limit is 200 together"),
    (
        inputs(input_ids=ints(1, VOCAB)),
        f"input_ids holds {VOCAB} at position 1, .*0 to {VOCAB - 1}",
    ),
    (inputs(input_ids=ints(-1)), "input_ids holds -1 at position 0"),
    (inputs(canvas_ids=ints(1, -7, 2)), "canvas_ids holds -7 at position 1"),
    (inputs(slots=ints(0, 4)), "slots holds 4 at position 1, the canvas has 0 to 3"),
    (inputs(slots=ints(-1, 0)), "slots holds -1 at position 0"),
    (inputs(slots=ints(2, 2)), "slots holds 2 more than once"),
    (inputs(slots=ints()), "slots has 0 positions, allowed are 1 to 6"),
    (inputs(canvas_ids=ints(*range(8)), slots=ints(*range(7))), "slots has 7 positions"),
    (inputs(slots=ints(1)), "label_ids has 2 rows, 1 slots need one each"),
    (inputs(label_ids=np.zeros((2, 0), np.int32)), "label_ids has 0 columns, allowed are 1 to 5"),
    (inputs(label_ids=np.zeros((2, 6), np.int32)), "label_ids has 6 columns, allowed are 1 to 5"),
    (inputs(label_ids=np.zeros((0, 2), np.int32)), "label_ids has 0 rows, 2 slots"),
    (inputs(label_ids=ints(1, 2)), "label_ids has shape \\[2\\]"),
    (inputs(label_ids=np.array([[1], [-1]], np.int32)), "label_ids row 1 starts with -1"),
    (inputs(label_ids=np.array([[1, 2, 3], [4, -1, 5]], np.int32)), "row 1 has a label behind -1"),
    (inputs(label_ids=np.array([[1, 2], [4, -2]], np.int32)), "row 1 holds -2 at position 1"),
    (inputs(label_ids=np.array([[1, VOCAB], [4, 5]], np.int32)), f"row 0 holds {VOCAB}"),
    (inputs(label_ids=np.array([[1, 2], [4, 4]], np.int32)), "row 1 holds 4 more than once"),
    (inputs(label_ids=None), "label_ids is missing"),
    (inputs(canvas_ids=None), "canvas_ids is missing"),
    (inputs(input_ids=None), "text_input and input_ids and messages are all missing"),
    (inputs(text_input=text(b"x")), "text_input and input_ids are both given"),
    (inputs(input_ids=np.array([1], np.int64)), "input_ids is int64, int32 is needed"),
    (inputs(input_ids=np.zeros((2, 2), np.int32)), "input_ids has shape \\[2, 2\\]"),
    (inputs(slots=np.array([0.0])), "slots is float64, int32 is needed"),
    (inputs(seed=np.array([1, 2], np.uint64)), "seed has shape \\[2\\], exactly one number"),
    (inputs(seed=np.array([1], np.int32)), "seed is int32, uint64 is needed"),
    (inputs(max_tokens=ints(3)), "max_tokens is given with a read, it belongs to a generation"),
    (inputs(maxtokens=ints(3)), "maxtokens is not an input, known are text_input"),
    (inputs(input_ids=None, text_input=text(b"ab\xff")), "text_input is not valid UTF-8 at byte 2"),
    (inputs(input_ids=None, text_input=text("\ud800")), "text_input: text holds a lone surrogate"),
    (inputs(input_ids=None, text_input=text(b"x" * 12801)), "12801 bytes, the limit is 12800"),
    (
        inputs(input_ids=None, text_input=text(b"many words " * 200)),
        "text_input and its canvas have",
    ),
    (inputs(input_ids=None, text_input=np.array([b"a", b"b"], object)), "exactly one string"),
    (inputs(input_ids=None, text_input=np.array([], object)), "shape \\[0\\], exactly one string"),
    (questions(text_input=None), "text_input is missing, questions are about a state"),
    (questions(text_input=text(b"  ")), "text_input is empty, a state needs 1 visible character"),
    (questions(questions=text(b"{}")), "questions is empty"),
    (questions(questions=text(b"[1")), "questions is not valid JSON"),
    (questions(questions=text(b"\xff")), "questions is not valid UTF-8 at byte 0"),
    (questions(questions=text(b'{"a": {"type": "rank"}}')), "type is 'rank', known are"),
    (questions(slots=ints(0)), "slots is given with questions"),
    (questions(input_ids=ints(0)), "input_ids is given with questions"),
    (questions(messages=text(b"[]")), "messages is given with questions"),
    (questions(stream=np.array([True])), "stream is given with a read"),
    (
        questions(text_input=text(b"word " * 300)),
        "text_input and its canvas have \\d+ \\+ 16 tokens",
    ),
]


@pytest.mark.parametrize(("made", "message"), BAD, ids=[message for _, message in BAD])
def test_a_wrong_read_is_refused_the_same_way_every_time(made, message):
    for _ in range(2):
        with pytest.raises(RequestError, match=message):
            parse(made)


def test_a_request_larger_than_the_pool_is_refused_with_both_numbers():
    parser = Parser(
        replace(LIMITS, kv=KvShape(16, 0, 4, 4)),
        TOKENIZER,
        GenerationDefaults(),
    )
    with pytest.raises(RequestError, match="need 6 KV pages .5 for 80 tokens.*the server has 4"):
        parser.parse(inputs(input_ids=ints(*[1] * 80)), {})


def test_an_unknown_parameter_is_refused_not_ignored():
    with pytest.raises(RequestError, match="parameter 'temperature' is not known"):
        parse(inputs(), temperature=0.5)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_served_or_refused_with_a_reason(raw):
    for made in (inputs(input_ids=None, text_input=text(raw)), questions(text_input=text(raw))):
        try:
            request = parse(made).request
        except RequestError as error:
            assert str(error)
        else:
            assert all(0 <= i < VOCAB for i in request.prompt_ids)


def test_one_very_long_word_is_answered_promptly():
    made = inputs(input_ids=None, text_input=text(b"x" * 12800))
    with pytest.raises(RequestError, match="tokens, the limit is 200 together"):
        parse(made)
