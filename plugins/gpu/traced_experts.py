"""`dg::routed_experts` as launches of a traced graph, for every number of rows.

The launches of experts_op.py, but for the tiers.
"""

import torch
from torch import Tensor

from plugins.gpu.device import tiles_of
from plugins.gpu.experts import combine_kernel, down_kernel, gate_up_kernel, sort_kernel
from plugins.gpu.experts_plan import ExpertShape, plan_experts
from plugins.gpu.launch import dtype_name
from plugins.gpu.tiers import Build, tiers
from plugins.gpu.traced import record, serves, settled


def routed_experts(
    build: Build,
    x: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
) -> Tensor:
    """The sort, both products by blocks of the tier's height, and the sum."""
    rows, pairs = x.shape[0], x.shape[0] * expert_ids.shape[1]
    shape = ExpertShape(gate_up.shape[0], expert_ids.shape[1], x.shape[1], down.shape[2])
    plans = tiers(lambda n: plan_experts(shape, dtype_name(x), n, build.gpu), build.rows)
    x, ids, weights = settled(x), expert_ids.contiguous(), expert_weights.contiguous()
    order, places = (x.new_empty((pairs,), dtype=torch.int32) for _ in range(2))
    starts = x.new_empty((shape.experts + 1,), dtype=torch.int32)
    inner = x.new_empty((pairs, shape.inner))
    produced = x.new_empty((pairs, shape.hidden), dtype=torch.float32)
    out = x.new_empty(x.shape)
    any_plan = plans[0].plan
    record(sort_kernel, (shape.experts,), (ids, pairs, order, places, starts), any_plan)
    for kernel, columns in ((gate_up_kernel, shape.inner), (down_kernel, shape.hidden)):
        for tier in plans:
            blocks = tiles_of(pairs, tier.plan.rows) + torch.sym_min(pairs, shape.experts)
            grid = (blocks * serves(tier, rows), tiles_of(columns, tier.plan.columns))
            if kernel is gate_up_kernel:
                record(kernel, grid, (x, order, starts, gate_up, pairs, inner), tier.plan)
            else:
                record(kernel, grid, (inner, starts, down, pairs, produced), tier.plan)
    summed = (produced, places, weights, pairs, out)
    record(combine_kernel, any_plan.combine_grid(rows), summed, any_plan)
    return out
