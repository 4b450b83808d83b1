"""The routed experts against torch's grouped product, sorting and combining included in both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks import gpu_peers
from benchmarks.gpu_cases import Finding, Timed
from benchmarks.gpu_check_experts import make
from benchmarks.gpu_clock import first_line
from benchmarks.gpu_compare import bound_of, distance
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import experts
from plugins.gpu.experts_op import routed_experts


def rows(context: Context, count: int) -> Iterator[Finding | Timed]:
    """One layer's experts over so many rows."""
    geometry = context.sizes.geometry
    inner = geometry.moe_intermediate_size
    shape = (geometry.num_experts, geometry.top_k_experts, geometry.hidden_size, inner)
    count = min(count, 16) if context.interpreted else count
    arguments = make(shape, count, context.dtype, context.device)
    group = f"{count} rows"
    few = [x[:64] for x in arguments[:3]] + arguments[3:]
    error = distance(routed_experts(*arguments)[:64], gpu_peers.experts_loop(*few))
    yield Finding(group, error, bound_of(context.dtype, context.interpreted))
    work = experts(geometry, count)
    yield context.timed(group, "dg", lambda: routed_experts(*arguments), work)
    try:
        grouped = gpu_peers.experts_grouped(*arguments)
    except (RuntimeError, AttributeError) as error_of_peer:
        if not context.interpreted:
            torch.cuda.synchronize(context.device)
        why = f"grouped_mm does not run: {first_line(error_of_peer)}"
        loop = context.timed(group, "loop", lambda: gpu_peers.experts_loop(*arguments), work)
        yield replace(loop, note=why)
        return
    truth = gpu_peers.experts_loop(*few)
    yield Finding(f"{group}, torch's grouped product", distance(grouped[:64], truth))
    yield context.timed(
        group, "torch grouped_mm", lambda: gpu_peers.experts_grouped(*arguments), work
    )
