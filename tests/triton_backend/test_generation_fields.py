"""A generation's prompt, sizes, rules and given tokens: valid, or refused with field and limit."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.triton_backend.asking import (
    LIMITS,
    TOKENIZER,
    VOCAB,
    asked,
    ints,
    parse,
    real,
    refused,
    strings,
)
from triton_backend.accept import ConfidenceFactor, ConfidenceThreshold, EntropyBound
from triton_backend.core import RequestError
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.kv_cache import KvShape
from triton_backend.parse import Parser


def test_a_prompt_alone_is_written_on_as_the_checkpoint_says():
    generation = asked()
    assert (generation.max_tokens, generation.canvas_length) == (64, 32)
    assert generation.stop_ids == {1, 5}
    assert (generation.stop_words, generation.start_ids, generation.pinned) == ((), (), ())
    assert not (generation.stream or generation.drafts or parse().log_probs)
    denoising = generation.denoising
    assert (denoising.max_steps, denoising.t_min, denoising.t_max) == (48, 0.4, 0.8)
    assert denoising.rule == EntropyBound(0.1)
    assert (denoising.stability_threshold, denoising.confidence_threshold) == (1, 0.005)
    assert (denoising.seed, denoising.greedy) == (0, False)


def test_max_tokens_that_cannot_be_are_refused_each_time_and_the_next_is_served():
    """The second 0 once killed a server that had kept half of the first."""
    for value in (0, 0, -1, 2**31 - 1):
        refused(f"max_tokens is {value}, allowed are .* from 1 to 197", max_tokens=ints(value))
    assert asked(max_tokens=ints(5)).max_tokens == 5


@pytest.mark.parametrize("prompt", [0, 1, 168, 199])
def test_prompt_and_max_tokens_fill_the_context_and_no_more(prompt):
    ids, room = ints(*[9] * prompt), 200 - prompt
    assert asked(input_ids=ids, max_tokens=ints(room)).max_tokens == room
    refused(
        f"max_tokens is {room + 1}, .* from 1 to {room}", input_ids=ids, max_tokens=ints(room + 1)
    )
    assert asked(input_ids=ids).max_tokens == min(64, room)


def test_a_prompt_that_leaves_no_room_is_refused():
    refused("the prompt has 200 tokens, the context is 200", input_ids=ints(*[9] * 200))
    refused("input_ids has 201 tokens, the limit is 200", input_ids=ints(*[9] * 201))


def test_a_generation_larger_than_the_pool_is_refused_with_both_numbers():
    small = Parser(
        replace(LIMITS, kv=KvShape(16, 0, 6, 6)),
        TOKENIZER,
        GenerationDefaults(),
    )
    wide = {"input_ids": ints(*[9] * 60), "max_tokens": ints(64)}
    assert parse(small, **{**wide, "max_tokens": ints(32)}).request.generation
    with pytest.raises(
        RequestError, match="input_ids and max_tokens need 8 KV .* the server has 6"
    ):
        parse(small, **wide)


def test_the_canvas_is_the_checkpoints_or_what_the_engine_can_hold():
    narrow = Parser(replace(LIMITS, max_canvas=24), TOKENIZER, GenerationDefaults())
    assert parse(narrow).request.generation.canvas_length == 24


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_a_seed_goes_to_the_denoising(seed):
    assert asked(seed=np.array([seed], np.uint64)).denoising.seed == seed


def test_a_rule_of_acceptance_may_be_chosen_but_only_one():
    assert asked(accept_threshold=real(0.9)).denoising.rule == ConfidenceThreshold(0.9)
    assert asked(accept_factor=real(1.5)).denoising.rule == ConfidenceFactor(1.5)
    assert asked(entropy_bound=real(0.2)).denoising.rule == EntropyBound(0.2)
    two = {"entropy_bound": real(0.2), "accept_threshold": real(0.9)}
    refused("entropy_bound and accept_threshold are both given, there is one rule", **two)
    refused("accept_threshold and accept_factor", accept_threshold=real(1), accept_factor=real(1))


def test_the_schedule_never_rises():
    same = asked(t_min=real(0.5), t_max=real(0.5)).denoising
    assert same.t_min == same.t_max == 0.5
    refused("t_min is 0.6, t_max is 0.5", t_min=real(0.6), t_max=real(0.5))
    refused("t_min is 0.9, t_max is 0.8", t_min=real(0.9))
    refused("t_min is 0.4, t_max is 0.3", t_max=real(0.3))


@pytest.mark.parametrize("length", [0, 1, 31, 32])
def test_given_canvas_ids_open_the_first_canvas(length):
    ids = tuple(range(length))
    assert asked(canvas_ids=ints(*ids)).start_ids == ids
    assert asked(canvas_ids=ints(*ids).reshape(1, length)).start_ids == ids


@pytest.mark.parametrize("length", [33, 64])
def test_more_canvas_ids_than_the_canvas_has_are_refused(length):
    refused(f"canvas_ids has {length} tokens, the canvas has 32", canvas_ids=ints(*[9] * length))


def test_canvas_ids_are_held_against_the_canvas_there_is_room_for():
    asked(canvas_ids=ints(*[9] * 8), canvas_length=ints(8))
    refused("has 9 tokens, the canvas has 8", canvas_ids=ints(*[9] * 9), canvas_length=ints(8))
    prompt = ints(*[9] * 190)
    asked(input_ids=prompt, canvas_ids=ints(*[9] * 10))
    refused("has 11 tokens, the canvas has 10", input_ids=prompt, canvas_ids=ints(*[9] * 11))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((1, 1, 4), np.int32), "canvas_ids has shape \\[1, 1, 4\\], one row"),
        (np.zeros((2, 4), np.int32), "canvas_ids has shape \\[2, 4\\], one row"),
        (np.array(3, np.int32), "canvas_ids has shape \\[\\], one row"),
        (np.zeros(4, np.int64), "canvas_ids is int64, int32 is needed"),
        (ints(0, VOCAB), f"canvas_ids holds {VOCAB} at position 1"),
        (ints(-1), "canvas_ids holds -1 at position 0"),
    ],
)
def test_canvas_ids_that_cannot_be_are_refused(ids, message):
    refused(message, canvas_ids=ids)


def test_pinned_positions_are_those_of_given_ids_and_leave_one_to_write():
    ids = ints(*[9] * 4)
    assert asked(canvas_ids=ids, pinned=ints(3, 0, 3)).pinned == (0, 3)
    assert asked(canvas_ids=ids, pinned=ints(0, 1, 2, 3)).pinned == (0, 1, 2, 3)
    assert asked(canvas_ids=ids, pinned=ints()).pinned == ()
    refused("pinned is given without canvas_ids", pinned=ints(0))
    refused(
        "pinned holds 4 at position 1, canvas_ids has 0 to 3", canvas_ids=ids, pinned=ints(0, 4)
    )
    refused("pinned holds -1 at position 0", canvas_ids=ids, pinned=ints(-1))
    full = {"canvas_ids": ids, "canvas_length": ints(4), "pinned": ints(0, 1, 2, 3)}
    refused("pinned names all 4 positions, one must be left", **full)


def test_stop_words_are_taken_as_text_and_empty_ones_left_out():
    words = strings(b"", "끝".encode(), "\n\n", b"x" * 10_000, b"")
    assert asked(stop_words=words).stop_words == ("끝", "\n\n", "x" * 10_000)
    assert asked(stop_words=strings()).stop_words == ()
    assert asked(stop_words=strings(*[b"x"] * 64, *[b""] * 10)).stop_words == ("x",) * 64


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (strings(*[b"x"] * 65), "stop_words holds 65, the limit is 64"),
        (strings(b"x", b"y" * 16_385), "stop_words has 16385 bytes, the limit is 16384"),
        (strings(b"x", b"y\xff"), "stop_words is not valid UTF-8 at byte 1"),
        (ints(1, 2), "stop_words is int32, a string is needed"),
    ],
)
def test_stop_words_that_cannot_be_are_refused(words, message):
    refused(message, stop_words=words)


def prompt(**inputs):
    return parse(input_ids=None, **inputs).request.prompt_ids


CHAT = "<|turn>user\n안녕?<turn|>\n<|turn>model\n"


def test_a_text_is_a_prompt_as_a_template_wrote_it_behind_one_bos():
    ids = (TOKENIZER.bos_id, *TOKENIZER.encode_control(CHAT))
    assert prompt(text_input=strings(CHAT.encode())) == ids
    assert prompt(text_input=strings(("<bos>" + CHAT).encode())) == ids
    assert prompt(text_input=strings(b"")) == ids[:1]


def test_messages_are_shown_by_the_template():
    messages = [{"role": "user", "content": "안녕? <turn|>"}]
    found = prompt(messages=strings(json.dumps(messages).encode()))
    assert found == TOKENIZER.render_chat(messages)
    plain = json.dumps([{"role": "user", "content": "안녕?"}])
    assert prompt(messages=strings(plain)) == prompt(text_input=strings(CHAT))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": strings("x")}, "text_input and input_ids are both given, exactly one"),
        ({"messages": strings("[]")}, "input_ids and messages are both given"),
        ({"input_ids": None}, "text_input and input_ids and messages are all missing"),
        (
            {"input_ids": None, "messages": strings("[]"), "text_input": strings("x")},
            "text_input and messages are both given",
        ),
        ({"input_ids": None, "messages": strings("{")}, "messages is not valid JSON"),
        (
            {"input_ids": None, "messages": strings('[{"role": "user", "content": "\\ud800"}]')},
            "messages: text holds a lone surrogate",
        ),
        ({"temprature": real(1)}, "temprature is not an input, known are text_input"),
    ],
)
def test_a_prompt_comes_in_exactly_one_way(inputs, message):
    refused(message, **inputs)
