"""How a request asks to be treated, seen from outside: its turn, its patience, times, its trace."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http
from tritonclient.utils import InferenceServerException

from examples.clients.tensors import inputs
from tests.server.reads import Streams, question_read, scalar, tensor_read
from tests.server.test_cancellation import LONG
from tests.server.test_scheduling import counted
from tests.server.writes import MODEL, responses, write
from triton_backend.server import Server, ServerConfig

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
TIMES = {"queue", "kv_wait", "prefill", "denoise", "execution", "send"}


def times(result: Any) -> dict[str, float]:
    return dict(json.loads(scalar(result, "timing_ms")))


def read(client: triton.InferenceServerClient, **more: Any) -> triton.InferResult:
    return client.infer("structured_read", [*tensor_read(), *inputs(triton, more)])


def test_times_come_when_asked_for_and_add_up(client: triton.InferenceServerClient) -> None:
    result = read(client, return_timing=np.bool_(True))
    found = times(result)
    assert found.keys() == TIMES
    assert found["queue"] == pytest.approx(scalar(result, "queue_ms"), abs=0.01)
    assert found["execution"] == pytest.approx(scalar(result, "execution_ms"), abs=0.01)
    # One execution held both the prompt and the canvas.
    assert found["prefill"] == found["denoise"] == found["execution"] > 0
    assert 0 < found["send"] < 1000
    assert found["kv_wait"] == 0
    assert read(client).as_numpy("timing_ms") is None
    assert read(client, return_timing=np.bool_(False)).as_numpy("timing_ms") is None


def test_a_generations_last_response_has_its_times_too(streams: Streams) -> None:
    *chunks, final = responses(streams, stream=True, return_timing=True)
    assert not any("timing_ms" in chunk for chunk in chunks)
    found = json.loads(final["timing_ms"][0])
    assert found["denoise"] > found["prefill"] > 0
    assert (final["preemptions"][0], final["cached_tokens"][0] >= 0) == (0, True)


def test_a_repeated_prompt_comes_from_the_cache_unless_its_salt_is_another(
    client: triton.InferenceServerClient,
) -> None:
    def cached(salt: str | None) -> int:
        asked = tensor_read(input_ids=[2, *range(700, 750)])
        result = client.infer("structured_read", [*asked, *inputs(triton, {"cache_salt": salt})])
        return int(scalar(result, "cached_tokens"))

    # 51 tokens: three whole pages of 16.
    assert [cached(salt) for salt in (None, None, "a", "a", "b")] == [0, 48, 0, 48, 0]


@pytest.mark.parametrize(("value", "said"), [(9, "9"), (-9, "-9"), (2**31 - 1, "2147483647")])
def test_a_bad_priority_is_refused_by_name_and_the_next_request_served(
    client: triton.InferenceServerClient, value: int, said: str
) -> None:
    message = f"priority is {said}, allowed are whole numbers from -8 to 8"
    for _ in range(2):
        with pytest.raises(InferenceServerException, match=message):
            read(client, priority=np.int32(value))
    assert scalar(read(client, priority=np.int32(-8)), "executions") == 1


def test_options_are_taken_as_parameters_by_every_door(
    server: Server, client: triton.InferenceServerClient, streams: Streams
) -> None:
    given = {"tenant": "shop", "return_timing": True, "traceparent": TRACEPARENT}
    found = [
        client.infer("structured_read", tensor_read(), parameters=given),
        streams.one(MODEL, tensor_read(), parameters=given),
    ]
    with tritonclient.http.InferenceServerClient(server.http_url) as http:
        asked = inputs(tritonclient.http, {"text_input": "x", "questions": ONE})
        found.append(http.infer("structured_read", asked, parameters=given))
    for result in found:
        assert times(result).keys() == TIMES
        assert scalar(result, "traceparent") == TRACEPARENT
    with pytest.raises(InferenceServerException, match="queue_timeout_ms is -0.5, allowed"):
        client.infer("structured_read", tensor_read(), parameters={"queue_timeout_ms": -0.5})


ONE = json.dumps({"q": {"type": "noul", "instructions": "Is it?"}})


def test_generate_takes_them_in_its_json(server: Server) -> None:
    def post(model: str, **body: Any) -> dict[str, Any]:
        url = f"http://{server.http_url}/v2/models/{model}/generate"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as response:
            return dict(json.load(response))

    more: dict[str, Any] = {"priority": -1, "return_timing": True, "traceparent": TRACEPARENT}
    more |= {"tenant": "shop", "queue_timeout_ms": 20000, "timeout": 20_000_000}
    found = post("structured_read", text_input="x", questions=ONE, **more)
    assert json.loads(found["timing_ms"]).keys() == TIMES
    assert found["traceparent"] == TRACEPARENT
    written = post("ensemble", text_input="x", max_tokens=2, **more)
    assert json.loads(written["timing_ms"]).keys() == TIMES


def test_a_trace_comes_back_as_it_was_given(
    server: Server, client: triton.InferenceServerClient
) -> None:
    """As an input, or as the header that OpenTelemetry's instrumentation adds by itself."""
    assert scalar(read(client, traceparent=TRACEPARENT), "traceparent") == TRACEPARENT
    header = {"traceparent": TRACEPARENT}
    result = client.infer("structured_read", tensor_read(), headers=header)
    assert scalar(result, "traceparent") == TRACEPARENT
    with tritonclient.http.InferenceServerClient(server.http_url) as http:
        asked = inputs(tritonclient.http, {"text_input": "x", "questions": ONE})
        result = http.infer("structured_read", asked, headers=header)
    assert scalar(result, "traceparent") == TRACEPARENT
    assert read(client).as_numpy("traceparent") is None


def test_a_trace_that_is_none_is_refused(client: triton.InferenceServerClient) -> None:
    for bad in ("00-0-0-01", f"00-{'0' * 32}-{SPAN_ID}-01"):
        with pytest.raises(InferenceServerException, match="traceparent is '.*W3C Trace Context"):
            read(client, traceparent=bad)


@pytest.fixture(scope="module")
def small(engine: Any) -> Any:
    """A server whose pages are enough for one long generation, and for nothing beside it."""
    parameters = {"kv_cache_pages": "9", "kv_sliding_pages": "9", "prefix_cache": "off"}
    with Server(ServerConfig(engine, parameters=parameters)) as running:
        yield running


class Busy:
    """Keeps a server's pages taken while it is open."""

    def __init__(self, server: Server) -> None:
        self._client = triton.InferenceServerClient(server.grpc_url)
        self._started = threading.Event()

    def __enter__(self) -> Busy:
        self._client.start_stream(self._take)
        self._client.async_stream_infer(MODEL, write(**LONG, stream=True, return_drafts=True))
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()

    def _take(self, result: triton.InferResult | None, error: Exception | None) -> None:
        # The first response comes before the first execution, a draft after one.
        if result is not None and result.as_numpy("canvas_entropy") is not None:
            self._started.set()


OVERLOADED = r"waited [\d.]+ s for its first execution, the server is overloaded and the limit is "


def test_a_request_that_waits_too_long_is_refused_as_overload_and_its_trace_is_logged(
    small: Server,
) -> None:
    time.sleep(1)  # What earlier tests did is published by then.
    before = small.metrics()
    patience = {"queue_timeout_ms": np.float32(100), "traceparent": TRACEPARENT}
    with Busy(small), triton.InferenceServerClient(small.grpc_url) as client:
        start = time.monotonic()
        with pytest.raises(InferenceServerException, match=f"{OVERLOADED}0.1 s") as caught:
            client.infer("structured_read", [*question_read(), *inputs(triton, patience)])
        assert time.monotonic() - start < 5
    assert "UNAVAILABLE" in str(caught.value.status())
    assert counted(small, before, "dg_queue_timeouts_total") == 1
    assert re.search(f"overloaded.*trace_id={TRACE_ID} span_id={SPAN_ID}", small.process.log)


def test_tritons_own_timeout_is_a_patience_too(small: Server) -> None:
    with Busy(small), triton.InferenceServerClient(small.grpc_url) as client:
        with pytest.raises(InferenceServerException, match=f"{OVERLOADED}0.05 s"):
            client.infer("structured_read", question_read(), timeout=50_000)
        # Its own input counts before it.
        mine = inputs(triton, {"queue_timeout_ms": np.float32(80)})
        with pytest.raises(InferenceServerException, match=f"{OVERLOADED}0.08 s"):
            client.infer("structured_read", [*question_read(), *mine], timeout=50_000)


def test_a_patient_request_is_served_after_its_wait(small: Server) -> None:
    results: list[triton.InferResult] = []

    def ask() -> None:
        with triton.InferenceServerClient(small.grpc_url) as client:
            timed = inputs(triton, {"return_timing": np.bool_(True)})
            results.append(client.infer("structured_read", [*question_read(), *timed]))

    asking = threading.Thread(target=ask)
    with Busy(small):
        time.sleep(1)  # What was counted so far is published by then.
        before = small.metrics()
        asking.start()
        assert counted(small, before, "dg_kv_waits_total") == 1
        time.sleep(0.2)
    asking.join(60)
    found = times(results[0])
    assert found["queue"] >= found["kv_wait"] > 150


def test_a_higher_priority_takes_the_pages_of_a_lower_one(small: Server) -> None:
    """Which is computed anew afterwards, and says so."""
    time.sleep(1)  # What earlier tests did is published by then.
    before = small.metrics()
    low = {**LONG, "max_tokens": 32, "max_denoising_steps": 60}
    asked = write(**low, stream=True, return_drafts=True)
    with Streams(small.grpc_url) as streams:
        streams.send(MODEL, [*asked, *inputs(triton, {"priority": np.int32(3)})])
        while (draft := streams.next()).as_numpy("canvas_entropy") is None:
            pass
        streams.send(MODEL, question_read())
        while (read_first := streams.next()).as_numpy("slot_probs") is None:
            assert read_first.as_numpy("finish_reason") is None, "the read came last"
        while (last := streams.next()).as_numpy("finish_reason") is None:
            pass
    assert scalar(draft, "denoising_steps") >= 1
    assert scalar(read_first, "preemptions") == 0
    assert scalar(last, "preemptions") == 1
    assert counted(small, before, "dg_preemptions_total") == 1


def test_waits_and_first_results_are_counted_in_histograms(
    server: Server, client: triton.InferenceServerClient, streams: Streams
) -> None:
    names = ("dg_queue_seconds", "dg_first_result_seconds")
    read(client)
    time.sleep(1)  # What earlier tests did is published by then.
    before = server.metrics()
    read(client)
    responses(streams, stream=True)
    deadline = time.monotonic() + 10
    while [counted(server, before, f"{name}_count") for name in names] != [2, 2]:
        assert time.monotonic() < deadline, "they are not counted"
        time.sleep(0.1)
    assert all(counted(server, before, f"{name}_sum") > 0 for name in names)
