"""Isolated questions: each has the prompt, the canvas and the noise that it would have alone."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.triton_backend.test_parse import LIMITS, TOKENIZER, inputs, parse, questions, text
from triton_backend.core import RequestError
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.parse import Parser
from triton_backend.question_fields import MOST_TEXTS

ASKED = {
    "team": {"type": "choice", "instructions": "Who?", "criteria": {"a": None, "b": "the b"}},
    "묻": {"type": "noul", "instructions": "Will they write again?"},
    "level": {"type": "score", "criteria": ["calm", "loud", "wild"]},
}
STATE = b"The app crashes when I open it."


def ask(asked, **more):
    made = {"text_input": text(STATE), "questions": text(json.dumps(asked).encode()), **more}
    return parse(questions(**made))


def isolated(asked, **more):
    return ask(asked, isolation=text(b"isolated"), **more)


@pytest.mark.parametrize("seed", [0, 9])
def test_prompt_canvas_noise_and_labels_are_those_of_the_question_alone(seed):
    seeded = {"seed": np.array([seed], np.uint64)}
    together = isolated(ASKED, **seeded)
    assert [question.id for question in together.questions] == list(ASKED)
    for (name, question), canvas in zip(ASKED.items(), together.request.canvases, strict=True):
        alone = ask({name: question}, **seeded).request
        assert together.request.prompt_ids + canvas.prompt_ids == alone.prompt_ids
        assert (canvas.ids, canvas.slots) == (alone.canvases[0].ids, alone.canvases[0].slots)
        assert canvas.label_ids == alone.canvases[0].label_ids
        assert canvas.prompt_ids


def test_the_state_is_part_of_what_all_share():
    request = isolated(ASKED).request
    alone = isolated({"묻": ASKED["묻"]}).request
    assert len(request.prompt_ids) > len(parse(inputs(input_ids=None, text_input=text(STATE)))
                                         .request.prompt_ids)  # fmt: skip
    assert request.prompt_ids == alone.prompt_ids[: len(request.prompt_ids)]
    assert max(len(canvas.prompt_ids) for canvas in request.canvases) < len(alone.prompt_ids)


def test_columns_are_those_of_the_widest_question():
    assert {canvas.label_columns for canvas in isolated(ASKED).request.canvases} == {3}


def test_one_question_is_the_same_either_way():
    one = {"묻": ASKED["묻"]}
    found, plain = isolated(one).request, ask(one).request
    assert (found.prompt_ids, found.canvases) == (plain.prompt_ids, plain.canvases)


def test_equal_questions_share_all_of_their_prompt():
    request = isolated({"a": ASKED["묻"], "b": ASKED["묻"]}).request
    assert [canvas.prompt_ids for canvas in request.canvases] == [(), ()]
    assert request.prompt_ids == ask({"a": ASKED["묻"]}).request.prompt_ids


def test_joint_is_what_happens_anyway():
    joint = ask(ASKED, isolation=text(b"joint")).request
    assert (joint.prompt_ids, joint.canvases) == (
        ask(ASKED).request.prompt_ids, ask(ASKED).request.canvases
    )  # fmt: skip
    assert len(joint.canvases) == 1


def test_isolated_questions_are_not_bound_by_the_width_of_one_canvas():
    many = {f"q{n}": ASKED["묻"] for n in range(60)}
    with pytest.raises(RequestError, match="the limit is 32"):
        ask(many)
    assert len(isolated(many).request.canvases) == 60


def test_steps_and_denoising_hold_for_each():
    found = isolated(ASKED, max_denoising_steps=np.array([4], np.int32)).request.canvases
    assert [canvas.denoising.max_steps for canvas in found] == [4, 4, 4]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"isolation": text(b"alone")}, "isolation is 'alone', known are 'joint' and 'isolated'"),
        ({"isolation": text(b"")}, "isolation is '', known are"),
        ({"isolation": np.array([1], np.int32)}, "isolation is int32, a string is needed"),
    ],
)
def test_another_isolation_is_refused(more, message):
    with pytest.raises(RequestError, match=message):
        ask(ASKED, **more)


def test_isolation_belongs_to_questions():
    mode = {"isolation": text(b"isolated")}
    with pytest.raises(RequestError, match="isolation is given without questions"):
        parse({**inputs(), **mode})
    with pytest.raises(RequestError, match="isolation is given without slots or questions"):
        parse({"text_input": text(b"x"), **mode})


def test_more_text_than_is_worth_tokenising_is_refused_at_once():
    state = b"word " * 2000
    many = {f"q{n}": ASKED["묻"] for n in range(21)}
    limit = MOST_TEXTS * 12800
    message = f"once for each of 21 isolated questions, has 210000 bytes, the limit is {limit}"
    with pytest.raises(RequestError, match=message):
        isolated(many, text_input=text(state))


def test_more_questions_than_canvases_are_refused():
    many = {f"q{n}": {"type": "noul", "instructions": "?"} for n in range(1025)}
    parser = Parser(replace(LIMITS, max_context=2000), TOKENIZER, GenerationDefaults())
    asked = {"questions": text(json.dumps(many).encode()), "isolation": text(b"isolated")}
    with pytest.raises(RequestError, match="questions holds 1025, 1024 can be isolated"):
        parser.parse(questions(**asked), {})


def test_a_state_that_fits_with_one_question_but_not_with_another_is_refused_with_both_numbers():
    long = {"type": "noul", "instructions": "again and " * 70}
    message = "text_input and canvas 1 with its question have \\d+ \\+ \\d+ tokens, the limit is"
    with pytest.raises(RequestError, match=message):
        isolated({"a": ASKED["묻"], "b": long})
