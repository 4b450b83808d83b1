"""Clients that go away: noticed between steps, nothing is left behind, the server lives on."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from examples.clients.tensors import inputs
from tests.server.reads import TICKET, Streams, question_read
from tests.server.test_generation import MESSAGES
from tests.server.writes import MODEL, responses, tokens_of, write
from triton_backend.server import Server

# Nothing is ever sure enough: every canvas takes all its steps.
LONG = {
    "max_tokens": 64, "max_denoising_steps": 400, "confidence_threshold": 1e-9,
    "stability_threshold": 64,
}  # fmt: skip


def resting(server: Server, seconds: float = 20.0) -> bool:
    """Whether no request is active and no page used, now or soon."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        shown = server.metrics()
        active = [v for k, v in shown.items() if 'request_type="active"' in k]
        used = [v for k, v in shown.items() if 'kv_cache_block_type="used"' in k]
        if active == [0.0] and used == [0.0]:
            return True
        time.sleep(0.1)
    return False


def test_two_hundred_streams_closed_at_random_points(server: Server, streams: Streams) -> None:
    """B50: before the first response, between two, after the last; over gRPC and HTTP."""
    (right,) = responses(streams)
    drawn = random.Random(0)

    def over_grpc(wait: float) -> None:
        with triton.InferenceServerClient(server.grpc_url) as client:
            client.start_stream(lambda result, error: None)
            client.async_stream_infer(MODEL, write(**LONG, stream=True, return_drafts=True))
            time.sleep(wait)
            client.stop_stream(cancel_requests=True)

    def over_http(wait: float) -> None:
        connection = http.client.HTTPConnection(server.http_url, timeout=30)
        body = json.dumps({"messages": MESSAGES, "stream": True, **LONG})
        connection.request("POST", f"/v2/models/{MODEL}/generate_stream", body)
        time.sleep(wait)
        connection.close()

    jobs = [(over_grpc if n % 2 else over_http, drawn.random() * 0.4) for n in range(200)]
    with ThreadPoolExecutor(16) as threads:
        for job in [threads.submit(close, wait) for close, wait in jobs]:
            job.result()
    assert resting(server)
    (again,) = responses(streams)
    assert tokens_of(again) == tokens_of(right)


def test_a_grpc_deadline_frees_the_request(server: Server) -> None:
    """B49. The plain model's request cannot be cancelled in the engine; the stream's can."""
    with triton.InferenceServerClient(server.grpc_url) as client:
        errors: list[Exception | None] = []
        done = threading.Event()

        def take(result: triton.InferResult | None, error: Exception | None) -> None:
            if error is not None:
                errors.append(error)
                done.set()

        client.start_stream(take, stream_timeout=0.5)
        client.async_stream_infer(MODEL, write(**LONG, stream=True))
        assert done.wait(20)
        client.stop_stream()
    assert "Deadline" in str(errors[0])
    assert resting(server)


def test_an_unstreamed_http_request_whose_client_has_gone_ends_at_its_own_limit(
    server: Server,
) -> None:
    """B49: HTTP without a stream shows the server nothing until it answers; the work is bounded."""
    connection = http.client.HTTPConnection(server.http_url, timeout=30)
    steps = {"max_denoising_steps": 20, "confidence_threshold": 1e-9, "stability_threshold": 64}
    body = json.dumps({"messages": MESSAGES, "max_tokens": 64, **steps})
    connection.request("POST", f"/v2/models/{MODEL}/generate", body)
    time.sleep(0.2)
    connection.close()
    assert resting(server)


def test_many_plain_reads_at_once_leave_the_forwarding_model_alive(server: Server) -> None:
    """Triton frees forwarded responses without Python's lock: 900 such reads killed the stub."""

    def read(n: int) -> int:
        with triton.InferenceServerClient(server.grpc_url) as client:
            for k in range(60):
                asked = [*question_read(TICKET), *inputs(triton, {"seed": np.uint64(n * 60 + k)})]
                client.infer("structured_read", asked, client_timeout=30)
        return 60

    with ThreadPoolExecutor(32) as threads:
        assert sum(threads.map(read, range(32))) == 1920


def test_a_cancelled_stream_ends_with_one_error(server: Server) -> None:
    with Streams(server.grpc_url) as streams:
        streams.send(MODEL, write(**LONG, stream=True))
        streams.next()
        streams._client.stop_stream(cancel_requests=True)
        with pytest.raises(InferenceServerException, match=r"(?i)cancel"):
            while True:
                streams.next()
    assert resting(server)
