"""The routed experts on a GPU against the reference: heights of blocks, odd sizes, routings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from benchmarks import gpu_peers
from benchmarks.gpu_cases import Finding
from benchmarks.gpu_compare import bound_of, distance
from benchmarks.gpu_context import Context
from plugins import reference
from plugins.gpu.experts_op import routed_experts


def make(
    shape: Sequence[int], rows: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> list[Tensor]:
    """Arguments of the op for (experts, choices, hidden, inner), made on the device."""
    experts, choices, hidden, inner = shape
    generator = torch.Generator(device).manual_seed(seed + rows)

    def normal(*sizes: int, std: float = 1.0) -> Tensor:
        out = torch.empty(sizes, dtype=dtype, device=device)
        return out.normal_(0, std, generator=generator)

    scores = torch.rand(rows, experts, generator=generator, device=device)
    weights, ids = scores.topk(choices)
    return [
        normal(rows, hidden),
        ids,
        weights / weights.sum(-1, keepdim=True),
        normal(experts, 2 * inner, hidden, std=hidden**-0.5),
        normal(experts, hidden, inner, std=inner**-0.5),
    ]


def _compare(context: Context, what: str, arguments: list[Tensor]) -> Finding:
    """Against the reference in fp32; what is inside rounds once more, as it does in torch."""
    found = routed_experts(*(x.to(context.device) for x in arguments))
    x, ids, weights, gate_up, down = arguments
    truth = reference.routed_experts(x.float(), ids, weights, gate_up.float(), down.float())
    return Finding(what, distance(found, truth), bound_of(x.dtype, context.interpreted))


def sizes(
    context: Context, dtype: str, shapes: Sequence[Sequence[int]], rows: Sequence[int]
) -> Iterator[Finding]:
    """Every shape (experts, choices, hidden, inner) with every number of rows."""
    cpu = torch.device("cpu")
    for shape in shapes[: 1 if context.interpreted else None]:
        for count in rows[: 3 if context.interpreted else None]:
            arguments = make(shape, count, getattr(torch, dtype), cpu)
            yield _compare(context, f"{count} rows, {list(shape)}, {dtype}", arguments)


def routings(context: Context) -> Iterator[Finding]:
    """All rows to one expert, an expert chosen twice, narrow ids, nothing read of the others."""
    cpu = torch.device("cpu")
    shape = (8, 2, 64, 32)
    arguments = make(shape, 30, torch.float32, cpu)
    arguments[1] = torch.full_like(arguments[1], 5)
    yield _compare(context, "all rows to one expert, twice", arguments)
    arguments = make(shape, 9, torch.float32, cpu)
    truth = reference.routed_experts(*arguments)
    unchosen = [expert for expert in range(8) if expert not in arguments[1]]
    for tensor in arguments[3:]:
        tensor[unchosen] = torch.nan
    arguments[1] = arguments[1].int()
    found = routed_experts(*(x.to(context.device) for x in arguments))
    bound = bound_of(torch.float32)
    yield Finding(f"int32 ids, {len(unchosen)} unread experts", distance(found, truth), bound)
    nothing = routed_experts(*(x.to(context.device) for x in make(shape, 0, torch.float32, cpu)))
    yield Finding("no rows", float(nothing.numel()), 0.0)


def released(context: Context, rows: Sequence[int]) -> Iterator[Finding]:
    """The released checkpoint's sizes, against torch's fp32 products on the device."""
    geometry = context.sizes.geometry
    inner = geometry.moe_intermediate_size
    shape = (geometry.num_experts, geometry.top_k_experts, geometry.hidden_size, inner)
    for count in rows[: 1 if context.interpreted else None]:
        arguments = make(shape, count, context.dtype, context.device)
        error = distance(routed_experts(*arguments), gpu_peers.experts_loop(*arguments))
        bound = bound_of(context.dtype, context.interpreted)
        yield Finding(f"{count} rows of {list(shape)}", error, bound)
