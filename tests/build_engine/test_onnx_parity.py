"""The ONNX graphs in onnxruntime against transformers: reads and generations of every phase mix.

Both forms are run: with the ops' functions, and rewritten in standard ops for TensorRT-RTX.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks import parity, parity_generation
from benchmarks.session import Policy, Session
from triton_backend.core import Request

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
from benchmarks.onnx_parity import steady
from benchmarks.onnx_runner import OnnxSession, PlainSession

POLICIES = {"fused": Policy(), "chunked": Policy(max_step_tokens=37)}


@pytest.fixture(scope="module", params=[OnnxSession, PlainSession], ids=["functions", "plain"])
def session(request: pytest.FixtureRequest, tiny_onnx: Path) -> Session:
    return request.param(tiny_onnx, pages=128)


@pytest.fixture(scope="module")
def requests(session: Session) -> dict[int, Request]:
    """Prompts around every page and window boundary."""
    return parity.make_requests(session)


@pytest.fixture(scope="module")
def truth(tiny: Path, requests: dict[int, Request]) -> parity.Logits:
    return parity.oracle(tiny, "float32", requests)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_logits_equal_transformers(
    session: Session, requests: dict[int, Request], truth: parity.Logits, policy: Policy
) -> None:
    """All in one batch: prompts, chunks of them and canvases share executions."""
    session.serve(requests.values(), policy, keep_logits=True)
    worst = max(float((session.logits[key] - truth[key]).abs().max()) for key in truth)
    assert worst <= parity.BOUNDS["float32"]


def test_generations_equal_transformers(session: Session, tiny: Path) -> None:
    """Commits and first steps in one execution, over several canvases, draws included."""
    requests = steady(parity_generation.make_generations(session, [8, 17, 31]))
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(tiny).eval()
    truth = parity_generation.oracle(model, requests)
    found = parity_generation.compare(session, requests, truth, Policy(), together=True)
    assert not found.parted
    assert found.ties == 0
    assert found.canvases > len(requests) == 2
