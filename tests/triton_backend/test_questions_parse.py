"""Questions on the wire: good ones are kept as they came, bad ones are refused by name."""

import json

import pytest

from triton_backend.questions import QuestionError, as_text, parse_questions


def parse(**questions):
    return parse_questions(json.dumps(questions))


def choice(count: int) -> dict:
    return {"type": "choice", "criteria": {f"option {i}": None for i in range(count)}}


def score(count: int) -> dict:
    return {"type": "score", "criteria": [f"level {i}" for i in range(count)]}


def test_the_three_types_get_their_labels_in_the_order_given():
    asked = parse(
        b={"type": "noul", "instructions": "Is it?"},
        a={"type": "choice", "criteria": {"z": None, "y": "why"}},
        c={"type": "score", "criteria": ["low", "high"]},
    )
    assert [q.id for q in asked] == ["b", "a", "c"]
    assert [q.labels for q in asked] == [("Y", "N"), ("A", "B"), ("0", "1")]
    assert [o.name for o in asked[1].options] == ["z", "y"]


def test_structured_text_becomes_json_with_keys_in_the_order_given():
    (asked,) = parse(q={"type": "noul", "instructions": {"b": "é", "a": [1, None]}})
    assert asked.instructions == '{"b": "é", "a": [1, null]}'


def test_a_described_outcome_stands_in_for_instructions():
    (asked,) = parse(q={"type": "noul", "criteria": {"true": "it rains", "false": None}})
    assert [o.description for o in asked.options] == ["it rains", ""]


@pytest.mark.parametrize("count", [2, 26])
def test_choices_within_the_limit_are_served(count):
    assert len(parse(q=choice(count))[0].options) == count


@pytest.mark.parametrize("count", [2, 9])
def test_scores_within_the_limit_are_served(count):
    assert len(parse(q=score(count))[0].options) == count


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (choice(1), r"criteria has 1 options, allowed are 2 to 26"),
        (choice(27), r"criteria has 27 options, allowed are 2 to 26"),
        (choice(0), r"has 0 options"),
        (score(1), r"criteria has 1 levels, allowed are 2 to 9"),
        (score(10), r"criteria has 10 levels, allowed are 2 to 9"),
        ({"type": "choice"}, r"must be an object of option to description, got nothing"),
        ({"type": "choice", "criteria": ["a", "b"]}, r"got an array"),
        ({"type": "choice", "criteria": {"a": None, " ": None}}, r"empty name"),
        ({"type": "choice", "criteria": {"a": 3, "b": None}}, r"criteria\['a'\] must be"),
        ({"type": "score", "criteria": {"0": "a"}}, r"must be an array"),
        ({"type": "score", "criteria": ["a", None]}, r"criteria\[1\] must be"),
        ({"type": "score", "criteria": ["a", " "]}, r"criteria\[1\] is empty"),
        ({"type": "noul"}, r"needs instructions"),
        ({"type": "noul", "instructions": ""}, r"needs instructions"),
        ({"type": "noul", "instructions": 5}, r"instructions must be .* got 5"),
        ({"type": "noul", "instructions": "x", "criteria": {"yes": "a"}}, r"outcome 'yes'"),
        ({"type": "noul", "instructions": "x", "criteria": []}, r"'true' and 'false'"),
        ({"type": "rank", "criteria": {}}, r"type is 'rank'"),
        ({"instructions": "x"}, r"type is None"),
        ({"type": ["noul"]}, r"type is \['noul'\]"),
        ({"type": "noul", "instructions": "x", "weight": 1}, r"unknown field 'weight'"),
        ("is it?", r"must be an object, got a string"),
        (None, r"must be an object, got nothing"),
    ],
)
def test_a_bad_question_is_refused_with_its_id_field_and_limit(question, message):
    with pytest.raises(QuestionError, match=message) as caught:
        parse(good={"type": "noul", "instructions": "x"}, bad=question)
    assert "'bad'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "must be an object of id to question"),
        ('"x"', "must be an object of id to question"),
        ("{}", "questions is empty"),
        ('{"q": {"type": "noul", "instructions": NaN}}', "NaN"),
        ("[" * 100_000, "not valid JSON"),
        ('{"q": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"q": {"type": "noul", "instructions": "x"}, "q": 1}', "'q' twice"),
        ('{"q": {"type": "noul", "type": "noul", "instructions": "x"}}', "'type' twice"),
        ('{"q": {"type": "noul", "instructions": "\\ud800"}}', "surrogate"),
        ('{"\\ud800": {"type": "noul", "instructions": "x"}}', "surrogate"),
    ],
)
def test_text_that_holds_no_questions_is_refused(text, message):
    with pytest.raises(QuestionError, match=message):
        parse_questions(text)


def test_a_state_is_text_or_structure_and_nothing_else():
    assert as_text("as it is ", "state") == "as it is "
    assert as_text(["ü", {"k": 1}], "state") == '["ü", {"k": 1}]'
    with pytest.raises(QuestionError, match="state must be a string, an object or an array"):
        as_text(7, "state")
