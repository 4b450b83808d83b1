"""Torch's compositions do the very work of the ops: against the reference, on a CPU."""

import pytest
import torch

from benchmarks import gpu_peers
from benchmarks.gpu_bench_attention import Shape
from benchmarks.gpu_bench_attention import make as make_attention
from benchmarks.gpu_check_experts import make as make_experts
from benchmarks.gpu_compare import distance
from benchmarks.gpu_context import Context
from benchmarks.gpu_sizes import TINY
from plugins import reference

CPU = torch.device("cpu")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.mark.parametrize("rows", [1, 17])
def test_experts_one_by_one_equal_the_reference(rows):
    arguments = make_experts((8, 2, 64, 32), rows, torch.float32, CPU)
    expected = reference.routed_experts(*arguments)
    torch.testing.assert_close(gpu_peers.experts_loop(*arguments), expected, **CLOSE)


@pytest.mark.parametrize("rows", [1, 17])
def test_grouped_experts_equal_the_reference(rows):
    """Also with experts that nobody chooses, and one that is chosen twice."""
    arguments = make_experts((8, 2, 64, 32), rows, torch.bfloat16, CPU)
    arguments[1][0] = 3
    truth = reference.routed_experts(
        *(x if x.dtype != torch.bfloat16 else x.float() for x in arguments)
    )
    assert distance(gpu_peers.experts_grouped(*arguments), truth) < 2e-2


def test_the_label_head_equals_the_reference():
    hidden = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    table = torch.randn(90, 16, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(10, dtype=torch.int32).reshape(5, 2)
    expected = reference.label_head(hidden, table, labels, 30.0)
    for ours, theirs in zip(
        gpu_peers.label_head(hidden, table, labels, 30.0), expected, strict=True
    ):
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, **CLOSE)


def test_the_denoise_head_equals_the_reference_but_for_what_it_draws():
    hidden = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    table = torch.randn(90, 16, generator=torch.Generator().manual_seed(1))
    temperature = torch.linspace(0.4, 0.8, 5)
    draws = torch.zeros(5, 3, dtype=torch.int64)
    expected = reference.denoise_head(hidden, table, temperature, draws, 30.0, 4.0)
    found = gpu_peers.denoise_head(hidden, table, temperature, 30.0, 4.0)
    for index in (0, 2, 3, 5):
        ours, theirs = found[index], expected[index]
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, atol=2e-5, rtol=1e-5)
    logits = gpu_peers.capped(hidden, table, 30.0) / temperature[:, None]
    chosen = torch.log_softmax(logits, -1).gather(1, found[1][:, None])[:, 0]
    torch.testing.assert_close(found[4], chosen, **CLOSE)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("committed", [0, 15, 16, 20])
def test_paged_and_dense_work_are_the_same(layer, committed):
    """A benchmark that compared different work would be worth nothing."""
    made = make_attention(Context(interpreted=True), Shape(layer, 2, committed, 8))
    window = TINY.geometry.window(layer)
    pages = (made.pool.clone().float(), made.slots, made.segments, made.table)
    keys, values = (x.float() for x in made.new)
    paged = reference.mixed_mask_paged_attention(made.rows.float(), keys, values, *pages, window)
    dense = gpu_peers.attention_truth(made.q, made.keys, made.values, made.causal)
    torch.testing.assert_close(paged, dense.transpose(1, 2).flatten(0, 1), **CLOSE)


def test_the_rows_own_keys_are_in_the_pool_already():
    """So that attention alone, and with its page write, do the same."""
    made = make_attention(Context(interpreted=True), Shape(0, 2, 12, 8))
    page = made.pool.shape[2]
    for part, rows in enumerate(made.new):
        stored = made.pool[made.slots // page, part, made.slots % page]
        assert torch.equal(stored, rows)
