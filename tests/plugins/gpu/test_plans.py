"""Launch plans: every row, key and id belongs to one program, and nobody loads torch for it."""

import subprocess
import sys
from itertools import product

import pytest

from plugins.gpu.attention_plan import AttentionShape, plan_attention, split
from plugins.gpu.device import ELEMENT_BYTES, TARGETS, Gpu, power_of_two
from plugins.gpu.experts_plan import ExpertShape, plan_experts
from plugins.gpu.heads_plan import plan_denoise_head, plan_label_head
from tests.plugins.gpu.interpreter import ROOT

GPUS = [Gpu(capability) for capability in (*TARGETS, 86)]
WIDTHS = (16, 24, 32, 64, 80, 128, 200, 256, 512)


@pytest.mark.parametrize("module", ["attention_plan", "experts_plan", "heads_plan", "page_plan"])
def test_plans_load_neither_torch_nor_triton(module):
    script = (
        f"import sys, plugins.gpu.{module}; assert not sys.modules.keys() & {{'torch', 'triton'}}"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("number", "least", "expected"), [(1, 1, 1), (3, 1, 4), (4, 1, 4), (5, 16, 16)]
)
def test_powers_of_two(number, least, expected):
    assert power_of_two(number, least) == expected


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_attention_tiles_are_what_products_take(gpu):
    for width, dtype, group in product(WIDTHS, ELEMENT_BYTES, (1, 3, 8, 100)):
        plan = plan_attention(AttentionShape(2 * group, 2, width, 16, 0), dtype, gpu)
        assert plan.tokens >= 1
        assert plan.width >= width
        for size in (plan.rows, plan.keys, plan.depth, plan.values):
            assert size >= 16
            assert size == power_of_two(size)
        assert plan.width % plan.depth == plan.width % plan.values == 0


def test_blocks_suffice_for_the_worst_segments():
    """Each of many segments may end in a block of its own with one token."""
    plan = plan_attention(AttentionShape(16, 2, 512, 64, 0), "bfloat16", Gpu(90))
    counts = [plan.tokens + 1] * 50
    needed = sum(-(-count // plan.tokens) for count in counts)
    assert plan.grid(sum(counts), len(counts))[0] >= needed


@pytest.mark.parametrize("positions", [511, 512, 1024, 8192, 262_144])
@pytest.mark.parametrize("rows", [1, 300, 5000])
def test_spans_cover_every_position_once(rows, positions):
    gpu = Gpu(90, 132)
    plan = plan_attention(AttentionShape(16, 2, 512, 64, 0), "bfloat16", gpu)
    found = split(plan, rows, positions, gpu)
    if found.splits > 1:
        assert found.span % found.keys == 0
        assert (found.splits - 1) * found.span < positions <= found.splits * found.span


def test_keys_are_split_for_few_rows_alone_and_never_within_a_window():
    gpu = Gpu(90, 132)
    whole = AttentionShape(16, 2, 512, 64, 0)
    assert split(plan_attention(whole, "bfloat16", gpu), 1, 262_144, gpu).splits > 16
    assert split(plan_attention(whole, "bfloat16", gpu), 2048, 262_144, gpu).splits == 1
    sliding = AttentionShape(16, 8, 256, 64, 1024)
    assert split(plan_attention(sliding, "bfloat16", gpu), 1, 262_144, gpu).splits == 1


@pytest.mark.parametrize("vocabulary", [1, 127, 128, 129, 32_768, 32_769, 262_144, 999_999])
def test_spans_and_chunks_cover_every_tile_once_whatever_the_rows(vocabulary):
    orders = set()
    for rows in (17, 5000):
        label = plan_label_head(64, vocabulary, 30.0, "bfloat16", rows, Gpu(90))
        assert (label.spans - 1) * label.span < label.tiles <= label.spans * label.span
        denoise = plan_denoise_head((64, vocabulary), 30.0, 8.0, "bfloat16", rows, Gpu(90))
        held = [denoise.tiles_in(chunk) for chunk in range(denoise.chunks)]
        assert sum(held) == denoise.tiles
        assert 0 < min(held) <= max(held) <= denoise.splits * denoise.part
        orders.add((label.span, denoise.chunk, denoise.part))
    assert len(orders) == 1


def test_memory_beside_the_tensors_is_bounded_by_a_chunk():
    plan = plan_denoise_head((2816, 262_144), 30.0, 53.0, "bfloat16", 256, Gpu(90))
    assert plan.width == 32_768


@pytest.mark.parametrize(("rows", "height"), [(1, 16), (128, 16), (256, 32), (4096, 64)])
def test_blocks_of_experts_grow_with_the_rows_an_expert_gets(rows, height):
    plan = plan_experts(ExpertShape(128, 8, 2816, 704), "bfloat16", rows, Gpu(90))
    assert plan.rows == height
    # Every expert may start a block, but no more of them than there are pairs.
    assert plan.grid(8 * rows, 704)[0] >= min(128, 8 * rows)
