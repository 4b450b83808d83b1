"""`dg::routed_experts` on a GPU; knows no kernel's inside."""

import torch
from torch import Tensor

from plugins.gpu.experts import combine_kernel, down_kernel, gate_up_kernel, sort_kernel
from plugins.gpu.experts_plan import ExpertPlan, ExpertShape, plan_experts
from plugins.gpu.launch import dtype_name, gpu_of, launch


def routed_experts(
    x: Tensor, expert_ids: Tensor, expert_weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    """The op as plugins.reference defines it, with row-major weights; ids are not checked."""
    _check(x, expert_ids, expert_weights, gate_up, down)
    shape = ExpertShape(len(gate_up), expert_ids.shape[1], x.shape[1], down.shape[2])
    plan = plan_experts(shape, dtype_name(x), len(x), gpu_of(x))
    return run_experts(x, expert_ids, expert_weights, gate_up, down, plan)


def run_experts(
    x: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    plan: ExpertPlan,
) -> Tensor:
    """The routed experts by a plan of their own."""
    x, ids, weights = x.contiguous(), expert_ids.contiguous(), expert_weights.contiguous()
    shape, pairs = plan.shape, ids.numel()
    order, places = x.new_empty((2, pairs), dtype=torch.int32)
    starts = x.new_empty((shape.experts + 1,), dtype=torch.int32)
    inner = x.new_empty((pairs, shape.inner))
    produced = x.new_empty((pairs, shape.hidden), dtype=torch.float32)
    out = torch.empty_like(x)
    if len(x) == 0:
        return out
    launch(sort_kernel, (shape.experts,), (ids, pairs, order, places, starts), plan)
    grid = plan.grid(pairs, shape.inner)
    launch(gate_up_kernel, grid, (x, order, starts, gate_up, pairs, inner), plan)
    grid = plan.grid(pairs, shape.hidden)
    launch(down_kernel, grid, (inner, starts, down, pairs, produced), plan)
    summed = (produced, places, weights, pairs, out)
    launch(combine_kernel, plan.combine_grid(len(x)), summed, plan)
    return out


def _check(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> None:
    experts, hidden, inner = down.shape
    if gate_up.shape != (experts, 2 * inner, hidden) or x.shape[1] != hidden:
        shapes = f"{list(x.shape)}, {list(gate_up.shape)} and {list(down.shape)}"
        raise ValueError(
            f"x, gate_up and down have shapes {shapes}; they must be [N, H], [E, 2 I, H], [E, H, I]"
        )
    if not x.dtype == gate_up.dtype == down.dtype:
        kinds = f"{x.dtype}, {gate_up.dtype} and {down.dtype}"
        raise ValueError(f"x, gate_up and down are {kinds}; they must be of one type")
    if not (gate_up.is_contiguous() and down.is_contiguous()):
        raise ValueError("gate_up and down must be contiguous")
    if ids.shape != weights.shape or len(ids) != len(x):
        raise ValueError("expert_ids and expert_weights must be [N, K]")
