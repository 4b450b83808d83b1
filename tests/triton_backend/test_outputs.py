"""Replies and pieces as response tensors: names, shapes and types, and what a stream leaves out."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.triton_backend.fakes import make_generation, make_request
from triton_backend import outputs
from triton_backend.core import FinishReason, Piece, Reply, SplitReason, Timing, Written
from triton_backend.parse import Parsed
from triton_backend.questions import parse_questions
from triton_backend.reads import ReadResult
from triton_backend.request_fields import Treatment
from triton_backend.trace import parse_traceparent

CONFIG = Path(__file__).parents[2] / "model_repo" / "diffusion_gemma" / "config.pbtxt"
KINDS = {
    "TYPE_INT32": "int32",
    "TYPE_FP32": "float32",
    "TYPE_STRING": "object",
    "TYPE_BOOL": "bool",
}
WRITTEN = Written((7, 8, 9), (-0.5, -0.25, -1.0), "안녕!", FinishReason.STOP, (4, 2), 0.25)
READ = ReadResult(
    log_probs=np.zeros((1, 2), np.float32),
    probs=np.array([[0.75, 0.25]], np.float32),
    label_mass=np.ones(1, np.float32),
    entropy=np.zeros(1, np.float32),
    argmax=np.ones(1, np.int32),
)
COUNTS = {"executions", "fusion", "queue_ms", "execution_ms", "num_input_tokens",
          "cached_tokens", "preemptions"}  # fmt: skip
TOKENS = {"text_output", "output_ids", "num_output_tokens"}
ENDED = {"effort", "finish_reason", "denoising_steps", "tokens_per_execution", "draft"}


def written(log_probs=False, stream=False):
    request = make_generation(0, prompt=6, stream=stream)
    timing = Timing(queue=0.25, execution=0.5)
    reply = Reply(request, written=WRITTEN, executions=6, timing=timing)
    return outputs.final(reply, Parsed(request, log_probs=log_probs))


def piece(log_probs=False, draft=False):
    request = make_generation(0, stream=True)
    made = Piece(request, 1, 3, (7, 8), (-0.5, -0.25), (0.1, 0.2, 0.3, 0.4), "안녕", draft)
    return outputs.chunk(made, log_probs)


def read(*questions):
    request = make_request(0)
    reply = Reply(request, reads=(READ,), executions=1, split=SplitReason.BUDGET)
    return outputs.final(reply, Parsed(request, questions=questions))


def declared():
    """Type and number of axes of each output that the model's configuration names."""
    section = CONFIG.read_text().split("output [")[1]
    entries = re.findall(r'name: "(\w+)" data_type: (\w+) dims: \[(.*?)\]', section)
    return {name: (KINDS[kind], dims.count(",") + 1) for name, kind, dims in entries}


@pytest.mark.parametrize(
    "arrays",
    [
        *(written(*flags) for flags in product((False, True), repeat=2)),
        *(piece(*flags) for flags in product((False, True), repeat=2)),
        outputs.empty_chunk(),
        read(*parse_questions('{"a": {"type": "noul", "instructions": "?"}}')),
    ],
)
def test_every_array_is_of_the_declared_type_and_rank(arrays):
    for name, array in arrays.items():
        assert (str(array.dtype), array.ndim) == declared()[name], name


def test_a_written_reply_has_tokens_text_and_counts():
    arrays = written()
    assert set(arrays) == COUNTS | TOKENS | ENDED
    assert arrays["output_ids"].tolist() == [7, 8, 9]
    assert arrays["text_output"][0].decode() == "안녕!"
    assert arrays["num_output_tokens"].tolist() == [3]
    assert arrays["num_input_tokens"].tolist() == [6]
    assert arrays["denoising_steps"].tolist() == [4, 2]
    assert arrays["finish_reason"][0] == b"stop"
    assert arrays["executions"].tolist() == [6]
    assert arrays["tokens_per_execution"].tolist() == [0.5]
    assert arrays["effort"].tolist() == [0.25]
    assert (arrays["queue_ms"].tolist(), arrays["execution_ms"].tolist()) == ([250], [500])
    assert arrays["draft"].tolist() == [False]


def test_a_streamed_reply_ends_with_all_counts_and_no_tokens():
    """A client that joins everything it gets must not read the text twice."""
    arrays = written(log_probs=True, stream=True)
    assert set(arrays) == set(written(log_probs=True))
    assert arrays["output_ids"].shape == arrays["output_log_probs"].shape == (0,)
    assert arrays["text_output"].tolist() == [b""]
    assert arrays["num_output_tokens"].tolist() == [3]
    assert arrays["denoising_steps"].tolist() == [4, 2]
    assert arrays["cum_log_probs"].tolist() == [-1.75]


def test_log_probs_are_shown_only_when_asked_for_and_add_up():
    arrays = written(log_probs=True)
    assert set(arrays) - set(written()) == {"output_log_probs", "cum_log_probs"}
    assert arrays["output_log_probs"].tolist() == [-0.5, -0.25, -1.0]
    assert arrays["cum_log_probs"].tolist() == [-1.75]
    assert set(piece(log_probs=True)) - set(piece()) == {"output_log_probs"}


def test_a_reply_of_no_tokens_is_a_reply():
    request = make_generation(0)
    nothing = Written((), (), "", FinishReason.STOP, (2,))
    arrays = outputs.final(
        Reply(request, written=nothing, executions=2), Parsed(request, log_probs=True)
    )
    assert arrays["output_ids"].shape == (0,)
    assert arrays["cum_log_probs"].tolist() == arrays["num_output_tokens"].tolist() == [0]


@pytest.mark.parametrize("draft", [False, True])
def test_a_piece_says_which_canvas_and_step_it_is_of(draft):
    arrays = piece(log_probs=True, draft=draft)
    assert arrays["output_ids"].tolist() == [7, 8]
    assert arrays["output_log_probs"].tolist() == [-0.5, -0.25]
    assert arrays["text_output"][0].decode() == "안녕"
    assert arrays["num_output_tokens"].tolist() == [2]
    assert (arrays["canvas"].tolist(), arrays["denoising_steps"].tolist()) == ([1], [3])
    assert arrays["canvas_entropy"] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert arrays["draft"].tolist() == [draft]


def test_an_empty_chunk_adds_nothing_to_what_a_client_joins():
    arrays = outputs.empty_chunk()
    assert arrays["output_ids"].shape == (0,)
    assert arrays["text_output"].tolist() == [b""]
    assert arrays["num_output_tokens"].tolist() == [0]
    assert arrays["draft"].tolist() == [False]


def test_a_read_has_its_slots_and_nothing_of_a_generation():
    arrays = read()
    slots = {"log_probs", "probs", "label_mass", "entropy", "argmax", "counts"}
    assert set(arrays) == COUNTS | {f"slot_{name}" for name in slots}
    assert arrays["fusion"].tolist() == [b"split: budget"]
    assert (arrays["slot_probs"] == READ.probs).all()


def test_slots_of_several_canvases_come_in_order_with_their_counts():
    other = replace(
        READ, probs=np.array([[0.1, 0.9], [0.5, 0.5]], np.float32),
        log_probs=np.ones((2, 2), np.float32), label_mass=np.zeros(2, np.float32),
        entropy=np.ones(2, np.float32), argmax=np.array([3, 4], np.int32),
    )  # fmt: skip
    request = make_request(0, canvases=2)
    questions = [
        *parse_questions('{"a": {"type": "noul", "instructions": "?"}}'),
        *parse_questions('{"b": {"type": "noul", "instructions": "?"}}'),
        *parse_questions('{"c": {"type": "noul", "instructions": "?"}}'),
    ]
    arrays = outputs.final(Reply(request, reads=(READ, other)), Parsed(request, tuple(questions)))
    assert arrays["slot_counts"].tolist() == [1, 2]
    assert arrays["slot_probs"][:, 0] == pytest.approx([0.75, 0.1, 0.5])
    assert arrays["slot_argmax"].tolist() == [1, 3, 4]
    found = json.loads(arrays["answers"][0])
    assert [found[name]["noul"] for name in "abc"] == pytest.approx([0.75, 0.1, 0.5])


def test_every_token_of_the_prompt_is_counted_those_of_single_canvases_too():
    request = make_request(0, prompt=6, canvases=2)
    canvases = tuple(replace(one, prompt_ids=(1, 2)) for one in request.canvases)
    request = replace(request, canvases=canvases)
    arrays = outputs.final(Reply(request, reads=(READ, READ)), Parsed(request))
    assert arrays["num_input_tokens"].tolist() == [10]


def test_times_and_trace_are_shown_when_asked_for():
    request = make_request(0)
    timing = Timing(queue=0.25, kv_wait=0.125, prefill=0.5, denoise=1.0, execution=1.25)
    reply = Reply(request, reads=(READ,), timing=timing, preemptions=2, cached_tokens=16)
    trace = parse_traceparent(f"00-{'1' * 32}-{'2' * 16}-01")
    asked = Treatment(timing=True, trace=trace)
    arrays = outputs.final(reply, Parsed(request, treatment=asked), sending=0.0625)
    assert json.loads(arrays["timing_ms"][0]) == {
        "queue": 250, "kv_wait": 125, "prefill": 500, "denoise": 1000, "execution": 1250,
        "send": 62.5,
    }  # fmt: skip
    assert arrays["traceparent"].tolist() == [trace.traceparent.encode()]
    assert (arrays["preemptions"].tolist(), arrays["cached_tokens"].tolist()) == ([2], [16])
    assert {"timing_ms", "traceparent"} == set(arrays) - set(read())
    for name in ("timing_ms", "traceparent"):
        assert (str(arrays[name].dtype), arrays[name].ndim) == declared()[name]


def test_answers_come_with_questions_only():
    arrays = read(*parse_questions('{"묻": {"type": "noul", "instructions": "?"}}'))
    assert set(arrays) - set(read()) == {"answers"}
    assert json.loads(arrays["answers"][0]) == {"묻": {"type": "noul", "noul": 0.75}}
    assert "묻".encode() in arrays["answers"][0]
