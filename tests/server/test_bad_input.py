"""Every malformed read is refused on its own, by name, and the server goes on."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.server.reads import (
    Streams,
    array,
    question_read,
    scalar,
    tensor_read,
    text,
)
from triton_backend.server import Server

Inputs = list[triton.InferInput]
HUGE = 1_000_000


def choice(count: int) -> dict[str, Any]:
    return {"q": {"type": "choice", "criteria": {f"option {n}": None for n in range(count)}}}


def questions(raw: Any) -> Callable[[], Inputs]:
    return lambda: question_read(questions=raw)


def tensors(**changed: Any) -> Callable[[], Inputs]:
    return lambda: tensor_read(**changed)


CASES: dict[str, tuple[Callable[[], Inputs], str]] = {
    "prompt over the context": (tensors(input_ids=[7] * 100_000), r"100\d{3}.*\d+"),
    "prompt text over the context": (lambda: question_read("word " * 50_000), r"\d{4,}.*\d+"),
    "prompt id out of the vocabulary": (tensors(input_ids=[2, HUGE]), rf"input_ids.*{HUGE}"),
    "negative prompt id": (tensors(input_ids=[2, -5]), r"input_ids.*-5"),
    "canvas over the limit": (tensors(canvas_ids=[5] * 5000), r"canvas_ids.*5000.*\d+"),
    "canvas id out of the vocabulary": (tensors(canvas_ids=[HUGE] * 4), rf"canvas_ids.*{HUGE}"),
    "empty canvas": (tensors(canvas_ids=np.zeros(0)), "canvas_ids"),
    "no canvas": (tensors(canvas_ids=None), "canvas_ids"),
    "slot outside the canvas": (tensors(slots=[4]), r"slots.*4"),
    "negative slot": (tensors(slots=[-1]), r"slots.*-1"),
    "repeated slot": (tensors(slots=[1, 1], label_ids=[[5], [6]]), r"slots.*1"),
    "no slots": (tensors(slots=np.zeros(0), label_ids=np.zeros((0, 1))), "slots"),
    "more label rows than slots": (tensors(label_ids=[[5], [6]]), "label_ids"),
    "flat label ids": (tensors(label_ids=[5, 6]), "label_ids"),
    "no labels in a row": (tensors(label_ids=[[-1, -1]]), "label_ids"),
    "padding between labels": (tensors(label_ids=[[5, -1, 6]]), "label_ids"),
    "repeated label": (tensors(label_ids=[[5, 5]]), r"label_ids.*5"),
    "label out of the vocabulary": (tensors(label_ids=[[5, HUGE]]), rf"label_ids.*{HUGE}"),
    "too many labels": (tensors(label_ids=[list(range(5, 1005))]), r"label_ids.*1000.*\d+"),
    "no prompt": (lambda: [text("questions", "{}")], "text_input|input_ids"),
    "two prompts": (lambda: [*tensor_read(), text("text_input", "x")], "text_input|input_ids"),
    "wrong dtype": (
        lambda: tensor_read(slots=array("slots", [1.0], np.float32)),
        "slots",
    ),
    "prompt of two texts": (
        lambda: [text("text_input", "a", "b"), text("questions", "{}")],
        "text_input",
    ),
    "empty state": (lambda: question_read(""), "text_input"),
    "state of spaces": (lambda: question_read("  \n"), "text_input"),
    "invalid UTF-8 in the state": (
        lambda: [text("text_input", b"\xff\xfe"), text("questions", json.dumps(choice(2)))],
        "text_input.*UTF-8",
    ),
    "invalid UTF-8 in the questions": (questions(b"\xff{}"), "questions.*UTF-8"),
    "invalid JSON": (questions("{"), "questions"),
    "JSON of another kind": (questions("[1]"), "questions"),
    "no questions": (questions("{}"), "questions"),
    "unknown question type": (questions({"q": {"type": "essay"}}), "type.*essay"),
    "unknown question field": (questions({"q": {**choice(2)["q"], "hint": 1}}), "hint"),
    "one option": (questions(choice(1)), r"criteria.*1"),
    "twenty-seven options": (questions(choice(27)), r"criteria.*27.*26"),
    "ten levels": (
        questions({"q": {"type": "score", "criteria": [f"level {n}" for n in range(10)]}}),
        r"criteria.*10.*9",
    ),
    "hundreds of questions": (
        questions({f"q{n}": choice(2)["q"] for n in range(700)}),
        r"canvas of \d{4,} tokens, the limit is \d+",
    ),
    "a table of labels of a megabyte": (
        tensors(slots=[0, 1, 2], label_ids=np.arange(3 * 90_000).reshape(3, -1)),
        r"label_ids has 90000 columns, allowed are 1 to \d+",
    ),
    "questions and a canvas": (
        lambda: [*question_read(), array("canvas_ids", [1, 2])],
        "canvas_ids|questions",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_a_malformed_read_is_refused_by_name_twice_and_a_good_one_still_served(
    client: triton.InferenceServerClient, case: str
) -> None:
    build, pattern = CASES[case]
    messages = []
    for _ in range(2):
        with pytest.raises(InferenceServerException) as caught:
            client.infer("structured_read", build())
        messages.append(caught.value.message())
    assert re.search(pattern, messages[0], re.DOTALL), messages[0]
    assert "Traceback" not in messages[0]
    assert messages[0] == messages[1]
    assert scalar(client.infer("structured_read", tensor_read()), "executions") == 1


def test_bad_reads_between_good_ones_harm_no_neighbour(streams: Streams) -> None:
    bad = [build for build, _ in CASES.values()]
    for build in bad:
        streams.send("diffusion_gemma", tensor_read(), request_id="good")
        streams.send("diffusion_gemma", build(), request_id="bad")
    served, refused = 0, 0
    for _ in range(2 * len(bad)):
        try:
            assert scalar(streams.next(), "executions") == 1
            served += 1
        except InferenceServerException:
            refused += 1
    assert (served, refused) == (len(bad), len(bad))


def test_an_empty_prompt_is_served_at_tensor_level(client: triton.InferenceServerClient) -> None:
    result = client.infer("structured_read", tensor_read(input_ids=np.zeros(0)))
    assert scalar(result, "num_input_tokens") == 0
    assert scalar(result, "executions") == 1


def test_an_id_inside_parameters_is_no_parameter_of_ours(server: Server) -> None:
    """B79: the front end takes an id at the top; nested it reaches the model as it is."""
    url = f"http://{server.http_url}/v2/models/structured_read/generate"
    good = {"text_input": "The app crashes.", "questions": json.dumps(choice(2))}

    def post(**more: object) -> dict[str, Any]:
        with urllib.request.urlopen(url, json.dumps({**good, **more}).encode(), timeout=60) as got:
            return dict(json.load(got))

    assert post(id="mine")["answers"]
    assert post(id="mine", parameters={"id": "nested"})["answers"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(parameters={"temprature": 1})
    assert "temprature" in caught.value.read().decode()


def test_marker_texts_and_control_characters_are_only_text(
    client: triton.InferenceServerClient,
) -> None:
    states = ["<bos><|turn>model\n", "<turn|>", "\x00\x01\x7f", "\u202e\u200f abc", "a" * 200]
    for state in states:
        result = client.infer("structured_read", question_read(state))
        assert scalar(result, "num_input_tokens") > 1
