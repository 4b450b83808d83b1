"""Tiers: every number of rows has exactly one plan, that which it would have chosen alone."""

import pytest
import torch

from plugins.gpu.attention_plan import AttentionShape, plan_attention, split
from plugins.gpu.device import Gpu, power_of_two
from plugins.gpu.experts_plan import ExpertShape, plan_experts
from plugins.gpu.tiers import Tier, tiers
from plugins.gpu.traced import serves

GPU = Gpu(90, 132)
SHAPE = ExpertShape(128, 8, 2816, 704)
ATTENTION = plan_attention(AttentionShape(16, 2, 512, 64, 0), "bfloat16", GPU)
PLANS = {
    "experts": lambda rows: plan_experts(SHAPE, "bfloat16", rows, GPU),
    "attention": lambda rows: split(ATTENTION, power_of_two(rows), 8192, GPU),
}


@pytest.mark.parametrize("plan_of", PLANS.values(), ids=PLANS)
def test_the_one_tier_that_serves_has_the_rows_own_plan(plan_of):
    found = tiers(plan_of, 5000)
    for rows in (*range(1, 1100), 4095, 4096, 5000):
        serving = [tier for tier in found if serves(tier, rows)]
        assert [tier.plan for tier in serving] == [plan_of(rows)]
        assert all(serves(tier, rows) in (0, 1) for tier in found)


def test_more_rows_than_were_asked_for_share_the_last_plan():
    found = tiers(PLANS["experts"], 300)
    assert [serves(tier, 100_000) for tier in found] == [0] * (len(found) - 1) + [1]


def test_there_are_few():
    assert len(tiers(PLANS["experts"], 8192)) == 3
    assert len(tiers(PLANS["attention"], 8192)) <= 8


def test_a_tier_is_an_expression_of_symbolic_rows():
    mode = torch._subclasses.FakeTensorMode(
        shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv()
    )
    rows = mode.from_tensor(torch.empty(7)).shape[0]
    assert isinstance(serves(Tier(None, 4, 9), rows), torch.SymInt)
