"""Start, failure, end: on a trivial model, so that only the launching is on trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.server.reads import Streams, text
from triton_backend.launch_error import LaunchError
from triton_backend.server import Server, ServerConfig

ECHO = ServerConfig(
    Path("/no engine"), templates=Path(__file__).parent / "echo_repo", exit_seconds=20
)


@pytest.fixture(scope="module")
def echo() -> Iterator[Server]:
    with Server(ECHO) as running:
        yield running


def regions(server: Server) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(server._shm_prefix)]


def ask(server: Server, words: str) -> str:
    with Streams(server.grpc_url) as streams:
        result = streams.one("echo", [text("text_input", words)])
        return str(result.as_numpy("text_output")[0].decode())


def test_strings_cross_the_backend_unharmed(echo: Server) -> None:
    assert ask(echo, "안녕 é 🎉") == "안녕 é 🎉"


def test_a_free_start_serves_on_loopback_only(echo: Server) -> None:
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ports = {echo.ports.http, echo.ports.grpc, echo.ports.metrics}
    local = [line.split()[1].split(":") for line in listening if line.split()[3] == "0A"]
    assert {host for host, port in local if int(port, 16) in ports} == {"0100007F"}


def test_the_engine_process_gets_the_threads_asked_for() -> None:
    with Server(replace(ECHO, threads=1)) as server:
        assert server.metrics()['echo_threads{kind="torch"}'] == 1


def test_a_refusal_at_load_is_the_whole_error_and_leaves_nothing() -> None:
    server = Server(replace(ECHO, parameters={"refusal": 'No "pool" fits: 3 of 5 bytes.'}))
    with pytest.raises(LaunchError) as caught, server:
        pass
    assert str(caught.value) == 'echo: No "pool" fits: 3 of 5 bytes.'
    assert server.process.poll() == 1
    assert regions(server) == []


def test_stopping_lets_a_request_in_flight_finish() -> None:
    server = Server(ECHO)
    answers: list[str] = []
    with server:
        asking = threading.Thread(target=lambda: answers.append(ask(server, "sleep 2")))
        asking.start()
        time.sleep(0.7)
        start = time.monotonic()
        assert server.stop() == 0
    asking.join()
    assert answers == ["sleep 2"]
    assert time.monotonic() - start < ECHO.exit_seconds / 2
    assert regions(server) == []


def test_a_killed_server_leaves_no_shared_memory() -> None:
    server = Server(ECHO)
    with server:
        assert regions(server)
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(5)
    assert regions(server) == []


def test_the_command_prints_urls_and_ends_cleanly_at_the_signal(tmp_path: Path) -> None:
    arguments = ["--engine", str(tmp_path), "--templates", str(ECHO.templates)]
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    command = [sys.executable, "-m", "triton_backend.launch", *arguments, *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(5)]
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=20) == 0
    assert lines[0] == f"serving {tmp_path}\n"
    assert "http://127.0.0.1:" in lines[1]


def test_a_second_server_beside_the_first(echo: Server) -> None:
    with Server(ECHO) as other:
        assert ask(other, "two") == "two"
        assert ask(echo, "one") == "one"
    assert ask(echo, "still here") == "still here"


def test_arrays_come_back_as_numpy(echo: Server) -> None:
    with triton.InferenceServerClient(echo.grpc_url) as client:
        config = client.get_model_config("echo", as_json=True)["config"]
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert np.__version__.startswith("1.")
