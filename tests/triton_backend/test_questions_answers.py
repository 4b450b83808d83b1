"""Answers on the wire: the shapes and formulas that clients validate."""

import json

import pytest

from triton_backend.answers import choice_confidence, score_confidence
from triton_backend.questions import answers, parse_questions

QUESTIONS = parse_questions(
    json.dumps(
        {
            "n": {"type": "noul", "instructions": "x"},
            "c": {"type": "choice", "criteria": {"red": None, "blue": None, "green": None}},
            "s": {"type": "score", "criteria": ["low", "mid", "high"]},
        }
    )
)


def test_each_type_has_its_fields():
    got = answers(QUESTIONS, [[0.75, 0.25, 0], [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    assert got["n"] == {"type": "noul", "noul": 0.75}
    assert got["c"]["choice"] == "red"
    assert got["c"]["probabilities"] == {"red": 0.5, "blue": 0.25, "green": 0.25}
    assert got["c"]["confidence"] == pytest.approx((0.5 - 1 / 3) / (2 / 3))
    assert got["s"]["score"] == pytest.approx(1.25)
    assert got["s"]["legend"] == {"0": "low", "1": "mid", "2": "high"}
    assert got["s"]["probabilities"] == {"0": 0.25, "1": 0.25, "2": 0.5}
    assert json.loads(json.dumps(got)) == got


def test_padding_labels_of_a_shorter_question_are_ignored():
    got = answers(QUESTIONS[:1], [[0.25, 0.75, 0.0, 0.0]])
    assert got == {"n": {"type": "noul", "noul": 0.25}}


def test_a_tie_goes_to_the_option_listed_first():
    got = answers(QUESTIONS[1:2], [[0.25, 0.375, 0.375]])
    assert got["c"]["choice"] == "blue"


@pytest.mark.parametrize("count", [2, 3, 9])
def test_confidence_is_one_for_a_certain_answer_and_zero_for_a_uniform_choice(count):
    certain = [0.0] * (count - 1) + [1.0]
    assert choice_confidence(certain) == pytest.approx(1)
    assert score_confidence(certain) == pytest.approx(1)
    assert choice_confidence([1 / count] * count) == pytest.approx(0)


def test_score_confidence_is_floored_at_zero():
    assert score_confidence([0.5, 0, 0, 0, 0.5]) == 0
    assert score_confidence([0.5, 0.5, 0]) == pytest.approx(1 - 0.5 / (2 / 3))


def test_a_missing_row_is_a_fault_of_the_caller():
    with pytest.raises(ValueError, match="zip"):
        answers(QUESTIONS, [[1.0, 0.0]])
