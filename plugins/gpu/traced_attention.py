"""`dg::mixed_mask_paged_attention` as launches of a traced graph, for every number of rows.

The launches of attention_op.py, but for the tiers: what that looks up in a tensor's shape when it
is called is an expression of the graph here.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from plugins.gpu.attention import attend_kernel, attend_split_kernel, merge_kernel
from plugins.gpu.attention_plan import AttentionPlan, AttentionShape, plan_attention, split
from plugins.gpu.device import power_of_two
from plugins.gpu.launch import dtype_name
from plugins.gpu.page_plan import plan_page_write
from plugins.gpu.page_write import page_write_kernel
from plugins.gpu.tiers import Build, Tier, tiers
from plugins.gpu.traced import record, serves, settled


def mixed_mask_paged_attention(build: Build, *arguments: Any) -> Tensor:
    """The page write, then attention with as many splits as the rows' tier has."""
    q, k, v, kv_pool, slots, segments, block_table, window = arguments
    rows, page = q.shape[0], kv_pool.shape[2]
    write = plan_page_write(k.shape[1], k.shape[2], page)
    # `before` is never read; the pool itself would have to be copied to be passed twice.
    written = (k.contiguous(), v.contiguous(), slots, slots, kv_pool.shape[0], kv_pool)
    record(page_write_kernel, write.grid(rows), written, write)
    base = plan_attention(
        AttentionShape(q.shape[1], k.shape[1], q.shape[2], page, window),
        dtype_name(q),
        build.gpu,
    )
    # Few tiers, which differ in splits by a factor of two: not one for each number of blocks.
    plans = tiers(lambda n: split(base, power_of_two(n), build.positions, build.gpu), build.rows)
    out, spans = q.new_empty(q.shape), _spans(build, plans, q)
    inputs = (settled(q), kv_pool, segments, block_table)
    for tier in plans:
        _attend(tier, rows, inputs, (*spans, out))
    return out


def _spans(
    build: Build, plans: tuple[Tier[AttentionPlan], ...], q: Tensor
) -> tuple[Tensor, Tensor]:
    """Averages and masses of the tier that has the most of both, which all tiers use.

    Kernels know their layout, so it need not be the buffers' shape, which holds whatever the rows.
    """
    held = [(tier.last or build.rows) * tier.plan.splits for tier in plans if tier.plan.splits > 1]
    most, floats = max(held, default=1) * q.shape[1], partial(q.new_empty, dtype=torch.float32)
    return floats((most * q.shape[2],)), floats((most,))


def _attend(
    tier: Tier[AttentionPlan],
    rows: int,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, Tensor, Tensor],
) -> None:
    """The launches of one tier over (q, pool, segments, table) into (averages, masses, out)."""
    plan, served = tier.plan, serves(tier, rows)
    q, pool, segments, table = inputs
    averages, masses, out = outputs
    blocks, heads, parts = plan.grid(rows, segments.shape[0])
    grid = (blocks * served, heads, parts)
    known = (inputs, rows, segments.shape[0], *table.shape, pool.shape[0])
    if plan.splits == 1:
        record(attend_kernel, grid, (*known, out), plan)
        return
    record(attend_split_kernel, grid, (*known, (averages, masses)), plan)
    record(merge_kernel, (rows * q.shape[1] * served,), (averages, masses, out), plan)
