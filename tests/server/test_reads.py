"""Structured reads through a running server: every door gives the same right-shaped answer."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http

from tests.server.reads import (
    QUESTIONS,
    TICKET,
    Streams,
    answers,
    array,
    is_final,
    question_read,
    scalar,
    tensor_read,
    text,
)
from triton_backend.server import Server

TENSORS = ("slot_log_probs", "slot_probs", "slot_label_mass", "slot_entropy", "slot_argmax")


def generate(server: Server, body: dict[str, object]) -> dict[str, object]:
    url = f"http://{server.http_url}/v2/models/structured_read/generate"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as response:
        return dict(json.load(response))


def test_both_models_and_the_server_are_ready(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("diffusion_gemma")
    assert client.is_model_ready("structured_read")


def test_a_read_takes_one_execution_and_answers_every_question(
    client: triton.InferenceServerClient,
) -> None:
    result = client.infer("structured_read", question_read())
    got = answers(result)
    assert list(got) == list(QUESTIONS)
    assert sum(got["department"]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert 0 <= got["again"]["noul"] <= 1
    assert scalar(result, "executions") == 1
    assert scalar(result, "fusion") == "fused"
    assert scalar(result, "num_input_tokens") > 20
    assert scalar(result, "execution_ms") > 0
    assert scalar(result, "queue_ms") >= 0


def test_the_stream_sends_one_data_response_and_one_final_mark(streams: Streams) -> None:
    streams.send("diffusion_gemma", question_read(), enable_empty_final_response=True)
    replies = [streams.next()]
    while not is_final(replies[-1]):
        replies.append(streams.next())
    with_data = [reply for reply in replies if reply.get_response().outputs]
    assert len(with_data) == 1
    assert answers(with_data[0]).keys() == QUESTIONS.keys()


def test_tensor_outputs_hold_together(client: triton.InferenceServerClient) -> None:
    labels = [[310, 311, 312], [400, -1, -1]]
    result = client.infer("structured_read", tensor_read(slots=[1, 3], label_ids=labels))
    log_probs, probs, mass, entropy, argmax = (result.as_numpy(name) for name in TENSORS)
    assert log_probs.shape == probs.shape == (2, 3)
    assert mass.shape == entropy.shape == argmax.shape == (2,)
    held = np.array(labels) >= 0
    np.testing.assert_allclose(np.where(held, np.exp(log_probs), 0).sum(1), mass, rtol=1e-4)
    np.testing.assert_allclose(np.where(held, probs, 0).sum(1), 1, atol=1e-5)
    assert np.isfinite(log_probs[held]).all()
    assert (entropy > 0).all()


def test_http_infer_equals_grpc_infer(server: Server, client: triton.InferenceServerClient) -> None:
    http = tritonclient.http.InferenceServerClient(server.http_url)
    inputs = []
    for name, value in (("text_input", TICKET), ("questions", json.dumps(QUESTIONS))):
        inputs.append(tritonclient.http.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([value.encode()], dtype=np.object_))
    by_http = http.infer("structured_read", inputs)
    by_grpc = client.infer("structured_read", question_read())
    assert json.loads(by_http.as_numpy("answers")[0]) == answers(by_grpc)
    http.close()


def test_generate_takes_plain_json(server: Server) -> None:
    reply = generate(server, {"text_input": TICKET, "questions": json.dumps(QUESTIONS)})
    assert json.loads(str(reply["answers"])).keys() == QUESTIONS.keys()
    assert (reply["executions"], reply["fusion"]) == (1, "fused")


def test_the_two_models_give_the_same_numbers(
    client: triton.InferenceServerClient, streams: Streams
) -> None:
    plain = client.infer("structured_read", tensor_read())
    streamed = streams.one("diffusion_gemma", tensor_read())
    for name in TENSORS:
        np.testing.assert_allclose(plain.as_numpy(name), streamed.as_numpy(name), atol=1e-5)


def test_a_prompt_may_be_text_at_tensor_level_too(client: triton.InferenceServerClient) -> None:
    result = client.infer(
        "structured_read", tensor_read(input_ids=None, text_input=text("text_input", "Hello"))
    )
    assert result.as_numpy("slot_probs").shape == (1, 3)


def test_a_seed_repeats_a_read(client: triton.InferenceServerClient) -> None:
    def probs(seed: int) -> np.ndarray:
        seeded = [*question_read(), array("seed", [seed], np.uint64)]
        return client.infer("structured_read", seeded).as_numpy("slot_probs")

    np.testing.assert_allclose(probs(7), probs(7), atol=1e-6)
    assert np.abs(probs(7) - probs(8)).max() > 0


def test_sixty_four_parallel_reads_equal_the_lone_read(server: Server) -> None:
    reads = [tensor_read(input_ids=[2, *range(200, 210 + n)]) for n in range(16)]

    def one(n: int) -> np.ndarray:
        return client.infer("structured_read", reads[n % 16]).as_numpy("slot_log_probs")

    with triton.InferenceServerClient(server.grpc_url) as client:
        alone = [one(n) for n in range(16)]
        with ThreadPoolExecutor(64) as pool:
            together = list(pool.map(one, range(64)))
    for n, log_probs in enumerate(together):
        np.testing.assert_allclose(log_probs, alone[n % 16], atol=1e-5)


@pytest.mark.parametrize("request_id", ["", "twin", "x" * 300])
def test_the_same_request_id_in_flight_ten_times_is_served_ten_times(
    streams: Streams, request_id: str
) -> None:
    for _ in range(10):
        streams.send("diffusion_gemma", tensor_read(), request_id=request_id)
    for _ in range(10):
        assert scalar(streams.next(), "executions") == 1
