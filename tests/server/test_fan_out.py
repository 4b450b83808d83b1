"""Many canvases in one request: each answer is its lone answer, and the prompt is encoded once."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http

from examples.clients.tensors import inputs
from tests.server.reads import QUESTIONS, TICKET, Streams, answers, scalar, tensor_read
from tests.server.test_scheduling import counted
from triton_backend.server import Server

MODELS = ("structured_read", "diffusion_gemma")
# The same executions of other shapes: two orders of summation at most, in log-probability.
BOUND = 1e-5
PAGE = 16
PROMPT = [2, *range(200, 236)]
OWNS = [[], [500], [501, 502, 503], list(range(600, 640)), [501, 502, 503]]
WIDTHS = (4, 7, 1, 32, 4)
SLOTS = ([1], [6, 0, 3], [0], [31, 5], [1])
NAMES = ("slot_log_probs", "slot_probs", "slot_label_mass", "slot_entropy")
ASKED: dict[str, Any] = {
    **QUESTIONS,
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "mid", "high"]},
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
}


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def labels(count: int) -> np.ndarray:
    table = 310 + np.arange(count * 3, dtype=np.int32).reshape(count, 3)
    table[1::2, 2] = -1
    return table


def canvas(n: int) -> list[int]:
    return [300 + 40 * n + at for at in range(WIDTHS[n])]


def fan_out() -> dict[str, np.ndarray]:
    """Five canvases, four of them with tokens of the prompt of their own."""
    table = labels(sum(map(len, SLOTS)))
    return {
        "input_ids": ids(*PROMPT),
        "canvas_ids": ids(*(token for n in range(5) for token in canvas(n))),
        "canvas_lengths": ids(*WIDTHS),
        "slots": ids(*(slot for slots in SLOTS for slot in slots)),
        "slot_counts": ids(*map(len, SLOTS)),
        "label_ids": table,
        "question_ids": ids(*(token for own in OWNS for token in own)),
        "question_lengths": ids(*map(len, OWNS)),
    }


def lone(client: triton.InferenceServerClient, n: int, **more: Any) -> triton.InferResult:
    """The read of one of the canvases, its own tokens behind the prompt."""
    first = sum(map(len, SLOTS[:n]))
    table = labels(sum(map(len, SLOTS)))[first : first + len(SLOTS[n])]
    asked = tensor_read(
        input_ids=PROMPT + OWNS[n], canvas_ids=canvas(n), slots=SLOTS[n], label_ids=table
    )
    return client.infer("structured_read", [*asked, *inputs(triton, more)])


def infer(server: Server, door: str, values: dict[str, Any]) -> Any:
    """The response to one request by one of three doors."""
    if door == "http":
        with tritonclient.http.InferenceServerClient(server.http_url) as http:
            return http.infer("structured_read", inputs(tritonclient.http, values))
    if door == "stream":
        with Streams(server.grpc_url) as streams:
            return streams.one("diffusion_gemma", inputs(triton, values))
    with triton.InferenceServerClient(server.grpc_url) as client:
        return client.infer("structured_read", inputs(triton, values))


@pytest.mark.parametrize("door", ["grpc", "http", "stream"])
def test_every_canvas_has_its_lone_answer_by_every_door(
    server: Server, client: triton.InferenceServerClient, door: str
) -> None:
    together = infer(server, door, fan_out())
    assert together.as_numpy("slot_counts").tolist() == [len(slots) for slots in SLOTS]
    row = 0
    for n, slots in enumerate(SLOTS):
        alone, rows = lone(client, n), slice(row, row + len(slots))
        row += len(slots)
        for name in NAMES:
            given, right = together.as_numpy(name)[rows], alone.as_numpy(name)
            np.testing.assert_allclose(given, right, atol=BOUND, rtol=0)
        assert (together.as_numpy("slot_argmax")[rows] == alone.as_numpy("slot_argmax")).all()
    assert row == len(together.as_numpy("slot_probs"))


def test_several_steps_of_denoising_keep_each_canvas_at_its_lone_answer(
    client: triton.InferenceServerClient,
) -> None:
    steps = {"max_denoising_steps": np.int32(3), "seed": np.uint64(11)}
    together = client.infer("structured_read", inputs(triton, {**fan_out(), **steps}))
    row = 0
    for n, slots in enumerate(SLOTS):
        given = together.as_numpy("slot_log_probs")[row : row + len(slots)]
        right = lone(client, n, **steps).as_numpy("slot_log_probs")
        np.testing.assert_allclose(given, right, atol=BOUND, rtol=0)
        row += len(slots)


def test_the_prompt_is_encoded_once_and_each_question_with_it(
    server: Server, client: triton.InferenceServerClient
) -> None:
    values = fan_out()
    values["input_ids"] = ids(2, *range(900, 950))  # known to no prefix cache
    before = server.metrics()
    result = client.infer("structured_read", inputs(triton, values))
    rows = counted(server, before, 'dg_rows_total{model="diffusion_gemma",phase="prefill"')
    prompt, own = 51, sum(map(len, OWNS))
    # A question starts at the last whole page of the prompt.
    assert rows == prompt + own + (prompt % PAGE) * sum(bool(one) for one in OWNS)
    assert scalar(result, "num_input_tokens") == prompt + own
    assert scalar(result, "executions") == 1
    assert counted(server, before, "dg_read_canvases_total") == 5


def test_draws_of_noise_differ_where_their_noise_does(
    client: triton.InferenceServerClient,
) -> None:
    draws = [[300, noise, 302] for noise in (400, 401, 400)]
    values = {
        "input_ids": ids(*PROMPT), "canvas_ids": ids(*np.ravel(draws)),
        "canvas_lengths": ids(3, 3, 3), "slots": ids(1, 1, 1), "slot_counts": ids(1, 1, 1),
        "label_ids": np.array([[310, 311]] * 3, np.int32),
    }  # fmt: skip
    found = client.infer("structured_read", inputs(triton, values)).as_numpy("slot_log_probs")
    assert np.abs(found[0] - found[2]).max() <= BOUND < np.abs(found[0] - found[1]).max()


def shares_of(answer: dict[str, Any]) -> dict[str, float]:
    """The probability of each answer to a question."""
    return dict(answer.get("probabilities", {"yes": answer.get("noul")}))


def isolated(**more: Any) -> dict[str, Any]:
    asked = json.dumps(ASKED, ensure_ascii=False)
    return {"text_input": TICKET, "questions": asked, "isolation": "isolated", **more}


@pytest.mark.parametrize("door", ["grpc", "http", "stream"])
def test_an_isolated_question_has_its_lone_answer_by_every_door(
    server: Server, client: triton.InferenceServerClient, door: str
) -> None:
    together = infer(server, door, isolated())
    assert list(answers(together)) == list(ASKED)
    assert together.as_numpy("slot_counts").tolist() == [1] * len(ASKED)
    for n, (name, question) in enumerate(ASKED.items()):
        values = {"text_input": TICKET, "questions": json.dumps({name: question})}
        alone = client.infer("structured_read", inputs(triton, values))
        right = alone.as_numpy("slot_log_probs")[0]
        given = together.as_numpy("slot_log_probs")[n]
        np.testing.assert_allclose(given[: len(right)], right, atol=BOUND, rtol=0)
        assert (given[len(right) :] == np.float32(-1e30)).all()
        given_shares, shares = (shares_of(answers(one)[name]) for one in (together, alone))
        assert given_shares == pytest.approx(shares, abs=BOUND)


def test_a_question_is_isolated_from_its_neighbours_and_their_order(
    client: triton.InferenceServerClient,
) -> None:
    """In one canvas, answers depend on the other questions; that is what isolation is for."""

    def shares(isolation: str, *names: str) -> dict[str, float]:
        asked = {name: ASKED[name] for name in names}
        values = isolated(isolation=isolation, questions=json.dumps(asked))
        result = client.infer("structured_read", inputs(triton, values))
        return shares_of(answers(result)["department"])

    one, other = (
        shares("isolated", "department", "again"), shares("isolated", "angry", "department")
    )  # fmt: skip
    assert one == pytest.approx(other, abs=BOUND)
    joint = shares("joint", "department", "again"), shares("joint", "angry", "department")
    assert joint[0] != pytest.approx(joint[1], abs=BOUND)


def test_joint_is_the_default(client: triton.InferenceServerClient) -> None:
    plain, joint = (
        client.infer("structured_read", inputs(triton, isolated(isolation=mode)))
        for mode in (None, "joint")
    )
    for name in ASKED:
        found, right = (shares_of(answers(one)[name]) for one in (joint, plain))
        assert found == pytest.approx(right, abs=BOUND)
    assert plain.as_numpy("slot_counts").tolist() == [len(ASKED)]


def test_generate_takes_isolated_questions(server: Server) -> None:
    url = f"http://{server.http_url}/v2/models/structured_read/generate"
    with urllib.request.urlopen(url, json.dumps(isolated()).encode(), timeout=60) as response:
        found = json.load(response)
    assert json.loads(found["answers"]).keys() == ASKED.keys()
    assert found["slot_counts"] == [1] * len(ASKED)


def test_the_example_client_shows_every_answer_and_what_it_took(server: Server) -> None:
    command = [sys.executable, "-m", "examples.clients.fan_out", "--url", server.grpc_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for shown in ("a refund", "department", "canvases: 15", "prompt: ", '"send": '):
        assert shown in done.stdout


def test_sixty_questions_are_one_request(client: triton.InferenceServerClient) -> None:
    """One canvas has no room for so many."""
    many = {f"q{n}": {"type": "noul", "instructions": f"Is it number {n}?"} for n in range(60)}
    values = isolated(questions=json.dumps(many))
    result = client.infer("structured_read", inputs(triton, values))
    assert len(answers(result)) == 60
    values = {"text_input": TICKET, "questions": json.dumps({"q41": many["q41"]})}
    alone = client.infer("structured_read", inputs(triton, values))
    given, right = (found.as_numpy("slot_log_probs") for found in (result, alone))
    np.testing.assert_allclose(given[41], right[0], atol=BOUND, rtol=0)
