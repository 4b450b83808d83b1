"""A real server on an ONNX engine, run by the runner that GPU targets share, against the CPU's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.server.conftest import CHECKPOINT, ROOT
from tests.server.reads import Streams, answers, question_read, tensor_read
from tests.server.writes import responses, text_of, tokens_of
from triton_backend.server import Server, ServerConfig

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
ENGINE = ROOT / "engines" / "tickets-onnx-float32"
# Two fp32 engines of the same checkpoint, in log-probability.
BOUND = 1e-3


@pytest.fixture(scope="module")
def onnx_server() -> Iterator[Server]:
    command = [sys.executable, "-m", "build_engine", "--if-needed", "--target", "onnx"]
    where = ["--checkpoint", str(CHECKPOINT), "--output", str(ENGINE)]
    subprocess.run([*command, *where], check=True, cwd=ROOT)
    with Server(ServerConfig(Path(ENGINE))) as running:
        yield running


@pytest.fixture
def onnx_streams(onnx_server: Server) -> Iterator[Streams]:
    with Streams(onnx_server.grpc_url) as opened:
        yield opened


def test_a_read_is_the_cpu_engines(streams: Streams, onnx_streams: Streams) -> None:
    wanted, found = (
        answers(each.one("diffusion_gemma", question_read())) for each in (streams, onnx_streams)
    )
    assert list(found) == list(wanted)
    choices = [answer["department"]["probabilities"] for answer in (found, wanted)]
    for label, probability in choices[1].items():
        assert choices[0][label] == pytest.approx(probability, abs=BOUND)
    assert found["again"]["noul"] == pytest.approx(wanted["again"]["noul"], abs=BOUND)


def test_a_read_at_tensor_level_is_the_cpu_engines(streams: Streams, onnx_streams: Streams) -> None:
    wanted, found = (each.one("diffusion_gemma", tensor_read()) for each in (streams, onnx_streams))
    for name in ("slot_log_probs", "slot_label_mass", "slot_entropy"):
        difference = np.abs(found.as_numpy(name) - wanted.as_numpy(name)).max()
        assert difference <= BOUND, name
    assert (found.as_numpy("slot_argmax") == wanted.as_numpy("slot_argmax")).all()


def test_a_generation_is_the_cpu_engines(streams: Streams, onnx_streams: Streams) -> None:
    """Two canvases, their commit, and as many denoising steps; the demo is sure of its replies."""
    asked = {"seed": 5, "return_log_probs": True}
    (wanted,), (found,) = (responses(each, **asked) for each in (streams, onnx_streams))
    assert text_of(found) == text_of(wanted)
    assert tokens_of(found) == tokens_of(wanted)
    assert (found["denoising_steps"] == wanted["denoising_steps"]).all()
    assert len(found["denoising_steps"]) == 2
    assert found["finish_reason"] == wanted["finish_reason"]
    assert np.abs(found["output_log_probs"] - wanted["output_log_probs"]).max() <= BOUND
