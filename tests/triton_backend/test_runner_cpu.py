"""The compiled engine against transformers: every path, every boundary, alone and in company."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks.parity import PATHS, make_requests
from benchmarks.session import Policy, Session, as_tensor, read_request
from build_engine.contract import load_contract
from build_engine.errors import EngineError
from tests.oracle import encode, read_logits
from triton_backend.core import Request
from triton_backend.runner_cpu import CpuRunner

# Two fp32 summation orders of the same products, through six layers.
LOGITS = 1e-4


@pytest.fixture(scope="module")
def session(tiny_engine: Path) -> Session:
    return Session(tiny_engine, pages=256)


@pytest.fixture(scope="module")
def model(tiny: Path) -> DiffusionGemmaForBlockDiffusion:
    return DiffusionGemmaForBlockDiffusion.from_pretrained(tiny).eval()


@pytest.fixture(scope="module")
def requests(session: Session) -> dict[int, Request]:
    return make_requests(session)


@pytest.fixture(scope="module")
def truth(
    model: DiffusionGemmaForBlockDiffusion, requests: dict[int, Request]
) -> dict[int, torch.Tensor]:
    return {
        key: read_logits(model, list(r.prompt_ids), list(r.canvases[0].ids))
        for key, r in requests.items()
    }


def poison(session: Session) -> None:
    """Fill the page pools with what no read may see."""
    for pool in session.tap.runner.pools:
        pool.fill(np.nan)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "batched"])
@pytest.mark.parametrize("policy", PATHS.values(), ids=PATHS)
def test_logits_equal_transformers(
    session: Session,
    requests: dict[int, Request],
    truth: dict[int, torch.Tensor],
    policy: Policy,
    together: bool,
) -> None:
    """Prompts of 0 tokens to four windows; a key read from a page nobody wrote would be NaN."""
    poison(session)
    batches = [list(requests.values())] if together else [[r] for r in requests.values()]
    for batch in batches:
        session.serve(batch, policy, keep_logits=True)
    for key, expected in truth.items():
        difference = float((session.logits[key] - expected).abs().max())
        assert difference <= LOGITS, f"prompt of {len(requests[key].prompt_ids)}: {difference}"


@pytest.mark.parametrize("budget", range(16, 28))
def test_every_chunking_of_a_prompt_gives_the_same_logits(
    session: Session,
    requests: dict[int, Request],
    truth: dict[int, torch.Tensor],
    budget: int,
) -> None:
    longest = max(requests.values(), key=lambda r: len(r.prompt_ids))
    poison(session)
    session.serve([longest], Policy(max_step_tokens=budget), keep_logits=True)
    assert float((session.logits[longest.key] - truth[longest.key]).abs().max()) <= LOGITS


def test_fused_and_split_write_the_same_keys_and_values(
    session: Session, model: DiffusionGemmaForBlockDiffusion, requests: dict[int, Request]
) -> None:
    """Equal within 1e-6 of each other, and equal to transformers' cache where that keeps them."""
    longest = max(requests.values(), key=lambda r: len(r.prompt_ids))
    count, page = len(longest.prompt_ids), session.contract.page_size
    written = []
    for policy in (Policy(), Policy(fusion=False), Policy(max_step_tokens=19)):
        poison(session)
        session.serve([longest], policy)
        pages = -(-count // page)
        # A fresh scheduler hands out pages 0, 1, 2, ... in order.
        pools = [as_tensor(pool[:pages]) for pool in session.tap.runner.pools]
        written.append([pool.transpose(0, 1).flatten(1, 2) for pool in pools])
    cache = encode(model, list(longest.prompt_ids))
    for layer, (fused, split, chunked) in enumerate(zip(*written, strict=True)):
        # Pages that the window has left are used again, by the canvas or by the next chunk.
        window = session.contract.geometry.window(layer)
        first = max(count - (window - 1), 0) if window else 0
        for other in (split,) if window else (split, chunked):
            assert float((fused[:, first:count] - other[:, first:count]).abs().max()) <= 1e-6
        kept = cache.layers[layer].keys.shape[2]
        for ours, theirs in zip(
            fused[:, count - kept : count],
            (cache.layers[layer].keys[0], cache.layers[layer].values[0]),
            strict=True,
        ):
            assert float((ours.transpose(0, 1) - theirs).abs().max()) <= 1e-5


def test_an_answer_does_not_depend_on_its_batch(session: Session) -> None:
    """16 reads of mixed lengths, alone and together, in log-probability."""
    rng = random.Random(3)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(512) for _ in range(count)]

    reads = [read_request(n, tokens(1 + 6 * n), tokens(16), (2, 9)) for n in range(16)]
    together = session.serve(reads)
    for request in reads:
        alone = session.serve([request])[request.key].reads[0]
        beside = together[request.key].reads[0]
        assert np.abs(alone.log_probs - beside.log_probs).max() <= 1e-5
        assert np.abs(alone.entropy - beside.entropy).max() <= 1e-5


def test_a_read_reports_the_exact_distribution(
    session: Session, requests: dict[int, Request], truth: dict[int, torch.Tensor]
) -> None:
    """Log-probabilities of exactly the labels asked for, the least likely among them."""
    key = max(requests)
    request, log_probs = requests[key], truth[key].log_softmax(-1)
    least = [int(n) for n in log_probs.argmin(-1)]
    labels = tuple((low, (low + 7) % 512, (low + 99) % 512) for low in least)
    canvas = dataclasses.replace(request.canvases[0], label_ids=labels, label_columns=3)
    asked = dataclasses.replace(request, canvases=(canvas,))
    found = session.serve([asked])[key].reads[0]
    expected = log_probs.gather(1, torch.tensor(labels)).numpy()
    assert np.abs(found.log_probs - expected).max() <= LOGITS
    assert np.abs(found.label_mass - np.exp(expected).sum(1)).max() <= 1e-6
    entropy = -(log_probs.exp() * log_probs).sum(1).numpy()
    assert np.abs(found.entropy - entropy).max() <= LOGITS
    assert (found.argmax == log_probs.argmax(1).numpy()).all()


def test_a_prompt_that_fits_is_read_in_one_execution(session: Session) -> None:
    reply = session.serve([read_request(1, range(20), range(4))])[1]
    assert (reply.executions, reply.fusion) == (1, "fused")


def test_a_prompt_of_20_with_budget_16_and_canvas_4_takes_two(session: Session) -> None:
    reply = session.serve([read_request(1, range(20), range(4))], Policy(max_step_tokens=16))[1]
    assert (reply.executions, reply.fusion) == (2, "fused")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"torch": "1.0.0"}, "built with torch 1.0.0"),
        ({"cpu_capability": "AVX9"}, "built for AVX9"),
    ],
)
def test_an_engine_of_another_machine_is_refused_in_words(
    tiny_engine: Path, change: dict[str, str], named: str
) -> None:
    contract = load_contract(tiny_engine)
    contract = dataclasses.replace(contract, builder={**contract.builder, **change})
    with pytest.raises(EngineError, match=named):
        CpuRunner(tiny_engine, contract)


def test_a_pool_beyond_all_memory_is_refused(tiny_engine: Path) -> None:
    runner = CpuRunner(tiny_engine, load_contract(tiny_engine))
    with pytest.raises(EngineError, match="MiB, more than this machine gives"):
        runner.create_pools(1 << 40, 1 << 40)
