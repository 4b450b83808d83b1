"""Many canvases in one request: split where the counts say, or refused with both numbers."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.triton_backend.asking import refused as refused_generation
from tests.triton_backend.test_parse import LIMITS, PARSER, TOKENIZER, VOCAB, inputs, ints, parse
from tests.triton_backend.test_parse import questions as question_inputs
from triton_backend.canvas_fields import FAN_OUT, MAX_CANVASES, MAX_SLOTS
from triton_backend.core import RequestError
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.kv_cache import KvShape
from triton_backend.parse import Parser


def table(*rows):
    return np.array(rows, np.int32)


def many(**changes):
    """Canvases of 3, 1 and 2 tokens with 2, 1 and 1 slots, the last two with a question."""
    made = {
        "canvas_ids": ints(1, 2, 3, 4, 5, 6),
        "canvas_lengths": ints(3, 1, 2),
        "slots": ints(2, 0, 0, 1),
        "slot_counts": ints(2, 1, 1),
        "label_ids": table([9, 8], [7, -1], [5, 6], [4, 3]),
        "question_ids": ints(11, 12, 13),
        "question_lengths": ints(0, 1, 2),
        **changes,
    }
    return inputs(**made)


def test_counts_say_where_each_canvas_ends():
    first, second, third = parse(many()).request.canvases
    assert [canvas.ids for canvas in (first, second, third)] == [(1, 2, 3), (4,), (5, 6)]
    assert [canvas.slots for canvas in (first, second, third)] == [(2, 0), (0,), (1,)]
    assert first.label_ids == ((9, 8), (7,))
    assert (second.label_ids, third.label_ids) == (((5, 6),), ((4, 3),))
    assert [canvas.prompt_ids for canvas in (first, second, third)] == [(), (11,), (12, 13)]
    assert {canvas.label_columns for canvas in (first, second, third)} == {2}


def test_without_questions_every_canvas_is_over_the_prompt_alone():
    made = many(question_ids=None, question_lengths=None)
    assert [canvas.prompt_ids for canvas in parse(made).request.canvases] == [(), (), ()]


def test_one_canvas_may_be_counted_too():
    alone = parse(inputs(canvas_lengths=ints(4), slot_counts=ints(2))).request
    assert alone.canvases == parse(inputs()).request.canvases


def test_draws_of_one_canvas_are_canvases_of_their_own():
    made = many(
        canvas_ids=ints(1, 2, 1, 2, 1, 2), canvas_lengths=ints(2, 2, 2),
        slots=ints(0, 0, 0), slot_counts=ints(1, 1, 1), label_ids=table(*[[9, 8]] * 3),
    )  # fmt: skip
    assert len({canvas.ids for canvas in parse(made).request.canvases}) == 1


def test_every_canvas_is_denoised_by_the_same_rule():
    steps = {"max_denoising_steps": ints(3), "seed": np.array([5], np.uint64)}
    found = {canvas.denoising for canvas in parse({**many(), **steps}).request.canvases}
    assert [(one.max_steps, one.seed) for one in found] == [(3, 5)]


@st.composite
def canvases(draw):
    ids = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9))
    places = draw(st.permutations(range(len(ids))))
    slots = places[: draw(st.integers(1, min(len(ids), 6)))]
    own = draw(st.lists(st.integers(0, VOCAB - 1), max_size=5))
    return ids, slots, [[n, n + 1, -1] for n in range(len(slots))], own


@settings(max_examples=100, deadline=None)
@given(st.lists(canvases(), min_size=1, max_size=6))
def test_each_canvas_is_what_it_would_be_alone(given_canvases):
    ids, slots, labels, owns = ([*part] for part in zip(*given_canvases, strict=True))
    made = {
        "canvas_ids": ids, "slots": slots, "label_ids": labels, "question_ids": owns
    }  # fmt: skip
    joined = {name: np.array([*chain(*parts)], np.int32) for name, parts in made.items()}
    counts = {"canvas_lengths": ids, "slot_counts": slots, "question_lengths": owns}
    counted = {name: ints(*map(len, parts)) for name, parts in counts.items()}
    found = parse(inputs(**joined, **counted)).request.canvases
    for canvas, (one, places, table_, own) in zip(found, given_canvases, strict=True):
        alone = inputs(canvas_ids=ints(*one), slots=ints(*places), label_ids=table(*table_))
        assert replace(canvas, prompt_ids=()) == parse(alone).request.canvases[0]
        assert canvas.prompt_ids == tuple(own)


BAD = [
    (many(canvas_lengths=ints(3, 1, 1)), "canvas_lengths adds up to 5, canvas_ids has 6"),
    (many(canvas_lengths=ints(3, 1, 7)), "canvas_lengths adds up to 11, canvas_ids has 6"),
    (many(canvas_lengths=ints(*[2**31 - 1] * 3)), "adds up to 6442450941, canvas_ids has 6"),
    (many(canvas_lengths=ints(3, -1, 4)), "canvas_lengths holds -1 at position 1, counts start"),
    (many(canvas_lengths=ints(3, 0, 3)), "canvas_ids of canvas 1 has 0 tokens, allowed are 1 to"),
    (many(canvas_lengths=ints()), f"has 0 canvases, allowed are 1 to {MAX_CANVASES}"),
    (many(canvas_lengths=ints(*[0] * 1025)), "canvas_lengths has 1025 canvases, allowed are 1 to"),
    (many(canvas_lengths=table([3, 1], [1, 1])), "canvas_lengths has shape \\[2, 2\\]"),
    (many(canvas_ids=table([1, 2], [3, 4])), "canvas_ids has shape \\[2, 2\\], one row"),
    (many(canvas_ids=ints(1, 2, 3, VOCAB, 5, 6)), f"canvas_ids of canvas 1 holds {VOCAB} at pos"),
    (many(slot_counts=None), "slot_counts is missing, 3 canvases need one each"),
    (many(slot_counts=ints(2, 2)), "slot_counts has 2 counts, 3 canvases need one each"),
    (many(slot_counts=ints(2, 1, 2)), "slot_counts adds up to 5, slots has 4"),
    (many(slot_counts=ints(3, 0, 1)), "slots of canvas 0 holds 0 more than once"),
    (many(slot_counts=ints(2, 2, 0)), "slots of canvas 1 holds 1 at position 1, the canvas has 0"),
    (many(slots=ints(2, 0, 1, 1)), "slots of canvas 1 holds 1 at position 0, the canvas has 0"),
    (many(label_ids=table([9, 8])), "label_ids has 1 rows, 4 slots need one each"),
    (many(label_ids=table([9, 8], [7, 7], [5, 6], [4, 3])), "label_ids of canvas 0 row 1 holds 7"),
    (many(label_ids=table([9, 8], [7, 6], [-1, 6], [4, 3])), "of canvas 1 row 0 starts with -1"),
    (many(question_ids=None), "question_lengths is given without question_ids"),
    (many(question_lengths=None), "question_ids is given without question_lengths"),
    (many(question_lengths=ints(1, 2)), "question_lengths has 2 counts, 3 canvases need one each"),
    (many(question_lengths=ints(0, 1, 1)), "question_lengths adds up to 2, question_ids has 3"),
    (many(question_ids=ints(11, 12, -2)), "question_ids of canvas 2 holds -2 at position 1"),
    (
        many(question_ids=ints(*[1] * 201), question_lengths=ints(0, 1, 200)),
        "input_ids and canvas 2 with its question have 3 \\+ 202 tokens, the limit is 200 together",
    ),
    (inputs(slot_counts=ints(2)), "slot_counts is given without canvas_lengths"),
    (inputs(question_ids=ints(2)), "question_ids is given without canvas_lengths"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "message"), BAD, ids=[message for _, message in BAD])
def test_wrong_counts_are_refused_the_same_way_every_time(made, message):
    for _ in range(2):
        with pytest.raises(RequestError, match=message):
            parse(made)


def test_slots_of_all_canvases_have_a_limit_together():
    count = 1024
    canvases = np.tile(np.arange(17, dtype=np.int32), count)
    made = many(
        canvas_ids=canvases, canvas_lengths=np.full(count, 17, np.int32), slots=canvases,
        slot_counts=np.full(count, 17, np.int32), question_ids=None, question_lengths=None,
    )  # fmt: skip
    with pytest.raises(RequestError, match=f"slots has 17408 positions, the limit is {MAX_SLOTS}"):
        parse(made)


@pytest.mark.parametrize("name", FAN_OUT)
def test_counts_belong_to_a_read_at_tensor_level(name):
    with pytest.raises(RequestError, match=f"{name} is given with questions"):
        parse(question_inputs(**{name: ints(1)}))
    refused_generation(f"{name} is given without slots or questions", **{name: ints(1)})


def test_a_question_counts_towards_the_pages_that_a_request_needs():
    """16 tokens of prompt in 1 page; 40 of a question and 15 before them in 4; the canvas in 1."""
    made = many(
        input_ids=ints(*[1] * 16), question_ids=ints(*[1] * 41), question_lengths=ints(0, 1, 40)
    )
    for pages, served in ((6, True), (5, False)):
        limits = replace(LIMITS, kv=KvShape(16, 0, pages, pages))
        parser = Parser(limits, TOKENIZER, GenerationDefaults())
        if served:
            assert len(parser.parse(made, {}).request.canvases) == 3
            continue
        message = "canvas 2 with its question need 6 KV pages .1 for 16 tokens.*the server has 5"
        with pytest.raises(RequestError, match=message):
            parser.parse(made, {})
    assert PARSER.parse(made, {})
