"""How many executions a read takes, seen from outside: in the reply and in the metrics."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.server.reads import Streams, question_read, scalar, tensor_read
from triton_backend.launch_error import LaunchError
from triton_backend.server import Server, ServerConfig


def counted(server: Server, before: Mapping[str, float], name: str) -> float:
    """By how much a counter has moved; it is published just after the reply that it counts."""
    deadline = time.monotonic() + 5
    while True:
        after = server.metrics()
        moved = [v - before.get(key, 0.0) for key, v in after.items() if key.startswith(name)]
        if any(moved) or time.monotonic() > deadline:
            return sum(moved)
        time.sleep(0.05)


def read(url: str, **changed: object) -> triton.InferResult:
    with triton.InferenceServerClient(url) as client:
        return client.infer("structured_read", tensor_read(**changed))


def test_the_metrics_count_one_fused_execution_for_a_read(server: Server) -> None:
    before = server.metrics()
    assert scalar(read(server.grpc_url), "executions") == 1
    assert counted(server, before, "dg_executions_fused_total") == 1
    assert counted(server, before, "dg_steps_total") == 1


def test_a_prompt_of_20_with_budget_16_and_canvas_4_takes_two_executions(engine: Path) -> None:
    config = ServerConfig(engine, parameters={"max_step_tokens": "16"})
    with Server(config) as small:
        before = small.metrics()
        result = read(small.grpc_url)
        assert scalar(result, "executions") == 2
        assert scalar(result, "fusion") == "fused"
        assert counted(small, before, "dg_executions_fused_total") == 1
        assert counted(small, before, "dg_steps_total") == 2


def test_fusion_switched_off_takes_two_executions_and_gives_the_same_answer(
    server: Server, engine: Path
) -> None:
    fused = read(server.grpc_url)
    with Server(ServerConfig(engine, parameters={"fusion": "off"})) as split_server:
        before = split_server.metrics()
        split = read(split_server.grpc_url)
        assert counted(split_server, before, "dg_executions_split_total") == 1
    assert (scalar(split, "executions"), scalar(split, "fusion")) == (2, "split: disabled")
    np.testing.assert_allclose(
        split.as_numpy("slot_log_probs"), fused.as_numpy("slot_log_probs"), atol=1e-4
    )


def test_stopping_with_reads_in_flight_ends_long_before_the_timeout(engine: Path) -> None:
    replies: list[object] = []

    def ask() -> None:
        with Streams(server.grpc_url) as streams:
            for _ in range(20):
                streams.send("diffusion_gemma", question_read())
            try:
                for _ in range(20):
                    replies.append(streams.next())
            except Exception as error:  # noqa: BLE001 - an error is a reply too
                replies.append(error)

    with Server(ServerConfig(engine)) as server:
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.2)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 12
    asking.join(timeout=30)
    assert replies


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_an_engine_that_is_missing_or_damaged_fails_with_one_sentence(
    engine: Path, tmp_path: Path, damage: str
) -> None:
    broken = tmp_path / "engine"
    if damage == "changed":
        subprocess.run(["cp", "-r", str(engine), str(broken)], check=True)
        with (broken / "tokenizer.json").open("a") as file:
            file.write(" ")
    command = [sys.executable, "-m", "triton_backend.launch", "--engine", str(broken)]
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    done = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert done.stderr.startswith("error: diffusion_gemma: ")
    assert done.stderr.count("\n") == 1
    assert str(broken) in done.stderr or "tokenizer.json" in done.stderr


def test_a_pool_too_small_for_one_read_is_refused_at_load(engine: Path) -> None:
    config = ServerConfig(engine, parameters={"kv_cache_pages": "1"})
    with pytest.raises(LaunchError, match=r"KV cache has 1 pages.*kv_cache_pages"), Server(config):
        pass
