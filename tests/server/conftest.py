"""A real server on the demo engine for the whole session; every test here carries its mark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc

from tests.server.reads import Streams
from triton_backend.server import Server, ServerConfig

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "examples" / "tickets" / "checkpoint"
ENGINE = ROOT / "engines" / "tickets-cpu-float32"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def engine() -> Path:
    """The engine `make demo` uses, built first where it is missing or stale."""
    command = [sys.executable, "-m", "build_engine", "--if-needed"]
    where = ["--checkpoint", str(CHECKPOINT), "--output", str(ENGINE)]
    subprocess.run([*command, *where], check=True, cwd=ROOT)
    return ENGINE


@pytest.fixture(scope="session")
def server(engine: Path) -> Iterator[Server]:
    """A running server with default settings, shared by tests that leave it as it was."""
    with Server(ServerConfig(engine)) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    """A gRPC client of the shared server."""
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as connected:
        yield connected


@pytest.fixture
def streams(server: Server) -> Iterator[Streams]:
    """A gRPC stream to the decoupled model of the shared server."""
    with Streams(server.grpc_url) as opened:
        yield opened
