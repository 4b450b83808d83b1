"""Block-diffusion generation through a running server: every door, streamed and not."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from examples.clients.tensors import inputs
from tests.server.reads import TICKET, Streams, answers, question_read
from tests.server.test_scheduling import counted
from tests.server.writes import ASK, MODEL, responses, text_of, tokens_of, write
from triton_backend.server import Server, ServerConfig

MESSAGES = json.dumps([{"role": "user", "content": f"{TICKET}\n\n{ASK}"}])


def post(server: Server, path: str, body: dict[str, object]) -> str:
    url = f"http://{server.http_url}/v2/models/{path}"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as response:
        return str(response.read().decode())


def test_a_reply_is_written_with_its_counts(streams: Streams) -> None:
    (final,) = responses(streams)
    assert text_of(final).startswith("Hello, thank you for your message.")
    assert final["num_output_tokens"][0] == len(tokens_of(final)) > 20
    assert final["finish_reason"][0] == b"stop"
    assert final["executions"][0] == final["denoising_steps"].sum()
    assert len(final["denoising_steps"]) == 2
    assert final["fusion"][0] == b"fused"
    expected = len(tokens_of(final)) / final["executions"][0]
    assert final["tokens_per_execution"][0] == pytest.approx(expected)


def test_a_stream_gives_an_empty_chunk_at_once_then_a_chunk_a_canvas_then_the_counts(
    streams: Streams,
) -> None:
    (whole,) = responses(streams, return_log_probs=True)
    first, *chunks, final = responses(streams, stream=True, return_log_probs=True)
    assert (text_of(first), tokens_of(first)) == ("", [])
    assert (text_of(final), tokens_of(final)) == ("", [])
    assert [chunk["canvas"][0] for chunk in chunks] == [0, 1]
    assert "".join(map(text_of, chunks)) == text_of(whole)
    assert [token for chunk in chunks for token in tokens_of(chunk)] == tokens_of(whole)
    log_probs = np.concatenate([chunk["output_log_probs"] for chunk in chunks])
    assert (log_probs == whole["output_log_probs"]).all()
    assert (log_probs <= 0).all()
    assert whole["cum_log_probs"][0] == pytest.approx(log_probs.sum(), rel=1e-5)
    for name in ("num_output_tokens", "finish_reason", "denoising_steps", "executions"):
        assert (final[name] == whole[name]).all()


def test_drafts_come_once_a_step_on_request(streams: Streams) -> None:
    _, *chunks, final = responses(streams, stream=True, return_drafts=True)
    drafts = [chunk for chunk in chunks if chunk["draft"][0]]
    steps = [(chunk["canvas"][0], chunk["denoising_steps"][0]) for chunk in drafts]
    counts = final["denoising_steps"].tolist()
    assert steps == [(n, s + 1) for n, count in enumerate(counts) for s in range(count)]
    assert all(len(chunk["canvas_entropy"]) == 32 for chunk in drafts)


def test_http_answers_once_or_streams_events(server: Server, streams: Streams) -> None:
    (whole,) = responses(streams)
    body = {"messages": MESSAGES, "max_tokens": 64}
    once = json.loads(post(server, f"{MODEL}/generate", body))
    assert once["text_output"] == text_of(whole)
    events = post(server, f"{MODEL}/generate_stream", {**body, "stream": True})
    parts = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    assert "".join(part["text_output"] for part in parts) == text_of(whole)
    assert parts[-1]["finish_reason"] == "stop"


def test_a_raw_prompt_is_the_same_as_its_conversation(server: Server, streams: Streams) -> None:
    (whole,) = responses(streams)
    prompt = f"<bos><|turn>user\n{TICKET}\n\n{ASK}<turn|>\n<|turn>model\n"
    raw = json.loads(post(server, f"{MODEL}/generate", {"text_input": prompt, "max_tokens": 64}))
    assert raw["text_output"] == text_of(whole)
    assert raw["num_input_tokens"] == whole["num_input_tokens"][0]


def test_the_ensemble_takes_and_gives_batches_of_one(server: Server, streams: Streams) -> None:
    """As Triton's OpenAI front end and TensorRT-LLM's clients ask."""
    prompt = f"<|turn>user\n{TICKET}\n\n{ASK}<turn|>\n<|turn>model\n"
    (whole,) = responses(streams)
    given = {
        "text_input": np.array([[prompt.encode()]], np.object_), "max_tokens": np.int32([[64]]),
        "stream": np.array([[True]]), "temperature": np.float32([[1.0]]),
        "top_p": np.float32([[1.0]]), "seed": np.uint64([[0]]),
    }  # fmt: skip
    tensors = []
    for name, value in given.items():
        tensor = triton.InferInput(
            name, [1, 1], {"O": "BYTES", "i": "INT32", "f": "FP32", "u": "UINT64", "b": "BOOL"}[
                value.dtype.kind
            ],
        )  # fmt: skip
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    streams.send("ensemble", tensors)
    text = ""
    while True:
        result = streams.next()
        assert result.as_numpy("text_output").shape == (1, 1)
        text += result.as_numpy("text_output")[0, 0].decode()
        if result.as_numpy("finish_reason") is not None:
            break
    assert text == text_of(whole)


@pytest.mark.parametrize("limit", [1, 31, 32, 33])
def test_never_more_than_max_tokens(streams: Streams, limit: int) -> None:
    (final,) = responses(streams, max_tokens=limit)
    assert len(tokens_of(final)) == final["num_output_tokens"][0] == limit
    assert final["finish_reason"][0] == b"length"


def test_stop_words_end_the_text_before_them(streams: Streams) -> None:
    (whole,) = responses(streams)
    word = np.array([b"no such word", b"message"], np.object_)
    _, *chunks, final = responses(streams, stop_words=word, stream=True)
    assert "".join(map(text_of, chunks)) == text_of(whole).split("message")[0]
    assert final["finish_reason"][0] == b"stop"


def test_a_seed_repeats_a_reply_alone_and_in_company_and_another_seed_denoises_otherwise(
    server: Server, streams: Streams
) -> None:
    """B08. One request in the middle of others, reads among them."""

    def reply(seed: int) -> list[int]:
        with Streams(server.grpc_url) as mine:
            (final,) = responses(mine, seed=seed, max_denoising_steps=3)
            return tokens_of(final)

    def read(_: int) -> None:
        with triton.InferenceServerClient(server.grpc_url) as client:
            client.infer("structured_read", question_read())

    alone = reply(7)
    with ThreadPoolExecutor(12) as threads:
        reads = [threads.submit(read, n) for n in range(6)]
        together = [threads.submit(reply, seed) for seed in (1, 2, 7, 3, 4, 7)]
        replies = [job.result() for job in together]
        for job in reads:
            job.result()
    assert replies[2] == replies[5] == alone
    noise = [
        responses(streams, seed=seed, max_denoising_steps=1, stream=True, return_drafts=True)[1]
        for seed in (7, 8)
    ]
    assert (noise[0]["canvas_entropy"] != noise[1]["canvas_entropy"]).any()


def test_fusion_switched_off_writes_the_same_in_more_executions(
    engine: Path, streams: Streams
) -> None:
    (fused,) = responses(streams)
    with (
        Server(ServerConfig(engine, parameters={"fusion": "off"})) as unfused,
        Streams(unfused.grpc_url) as stream,
    ):
        (final,) = responses(stream)
    assert tokens_of(final) == tokens_of(fused)
    steps = final["denoising_steps"]
    assert final["executions"][0] == 1 + steps.sum() + (len(steps) - 1)


def test_the_metrics_count_the_prompt_once_and_each_commit(
    server: Server, streams: Streams
) -> None:
    before = server.metrics()
    (final,) = responses(streams)
    rows = {
        phase: counted(server, before, f'dg_rows_total{{model="{MODEL}",phase="{phase}"')
        for phase in ("prefill", "commit", "denoise")
    }
    assert rows["prefill"] == final["num_input_tokens"][0] - final["cached_tokens"][0]
    written = final["num_output_tokens"][0]
    assert counted(server, before, "dg_generated_tokens_total") == written
    assert counted(server, before, "dg_generated_canvases_total") == len(final["denoising_steps"])
    assert rows["commit"] == 32 * (len(final["denoising_steps"]) - 1)
    assert rows["denoise"] == 32 * final["denoising_steps"].sum()


def test_a_read_of_several_steps_answers_as_one_step_does_in_kind(
    client: triton.InferenceServerClient,
) -> None:
    steps = inputs(triton, {"max_denoising_steps": np.int32(4)})
    result = client.infer("structured_read", [*question_read(), *steps])
    assert result.as_numpy("executions")[0] == 4
    once = answers(client.infer("structured_read", question_read()))
    assert answers(result).keys() == once.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0, allowed are whole numbers from 1"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"max_tokens": 2**31 - 1}, "max_tokens is 2147483647"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": 1e-9}, "temperature is 1e-09"),
        ({"repetition_penalty": 1.3}, "repetition_penalty is 1.3, only 1 is possible"),
        ({"top_k": 40}, "top_k is 40, only 0 or -1 is possible"),
        ({"t_min": 0.9, "t_max": 0.5}, "t_min is 0.9, t_max is 0.5"),
        ({"guided_decoding_guide": "{}"}, "for answers of a fixed form use a structured read"),
        ({"image_url": "data:,x"}, "images are not supported yet"),
        ({"messages": "[]"}, "messages is not a list of messages"),
        ({"text_input": "x"}, "text_input and messages are both given"),
        ({"bogus": "x"}, "bogus"),
    ],
)
def test_a_wrong_generation_is_refused_twice_and_the_next_one_served(
    streams: Streams, options: dict[str, object], message: str
) -> None:
    """B07, B76: the second refusal finds the engine dead."""
    for _ in range(2):
        with pytest.raises(InferenceServerException, match=message):
            streams.one(MODEL, write(**options))
    (final,) = responses(streams, max_tokens=5)
    assert final["num_output_tokens"][0] == 5


def test_a_stream_asked_of_the_plain_model_is_refused_with_the_right_ones_name(
    client: triton.InferenceServerClient,
) -> None:
    """B61."""
    asked = [*question_read(), *inputs(triton, {"stream": np.bool_(True)})]
    with pytest.raises(InferenceServerException, match="ask diffusion_gemma for a stream"):
        client.infer("structured_read", asked)


def test_neutral_values_are_accepted(streams: Streams) -> None:
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    (final,) = responses(streams, **neutral)
    (plain,) = responses(streams)
    assert tokens_of(final) == tokens_of(plain)
    (greedy,) = responses(streams, temperature=0.0)
    assert tokens_of(greedy)
