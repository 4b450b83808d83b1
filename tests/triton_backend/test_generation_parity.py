"""Generation by the compiled engine equals transformers' `generate`, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks.parity_generation import Truth, boundary_generations, compare, oracle
from benchmarks.session import Policy, Session
from triton_backend.core import Request

POLICIES = {
    "fused": Policy(),
    "unfused": Policy(fusion=False),
    "chunked": Policy(max_step_tokens=41),
}


@pytest.fixture(scope="module")
def session(tiny_engine: Path) -> Session:
    return Session(tiny_engine, pages=512)


@pytest.fixture(scope="module")
def requests(session: Session) -> list[Request]:
    """Prompts around every page and window boundary; the canvases that follow cross more."""
    return boundary_generations(session, demo=False)


@pytest.fixture(scope="module")
def truth(tiny: Path, requests: list[Request]) -> Truth:
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(tiny).eval()
    return oracle(model, requests)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "batched"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_every_step_equals_transformers(
    session: Session, requests: list[Request], truth: Truth, policy: Policy, together: bool
) -> None:
    """Canvases, accepted sets, stop steps and tokens; a tie within rounding may part, rarely."""
    found = compare(session, requests, truth, policy, together)
    assert not found.parted
    assert found.steps > 100
    assert found.ties <= 0.1 * found.requests


def test_some_stop_early_and_some_write_several_canvases(truth: Truth) -> None:
    """Otherwise the comparison would say nothing of the stop rule, or of commits."""
    steps = [[step.canvas for step in steps] for _, steps in truth.values()]
    assert any(len(canvases) < 6 * (canvases[-1] + 1) for canvases in steps)
    assert max(canvases[-1] for canvases in steps) == 3


def test_tokens_do_not_depend_on_batch_nor_fusion_bit_for_bit(
    session: Session, requests: list[Request]
) -> None:
    """On the CPU a row's arithmetic never depends on its neighbours, so not even a tie differs."""
    alone = {r.key: session.serve([r])[r.key].written for r in requests[:6]}
    for policy in POLICIES.values():
        replies = session.serve(requests[:6], policy)
        assert {key: reply.written for key, reply in replies.items()} == alone
