"""The paged attention on a GPU against the reference: phases, page and window edges, heads, types.

The reference runs in fp32 on a CPU, on the numbers that the kernel gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, product

import torch
from torch import Tensor

from benchmarks.gpu_cases import Finding
from benchmarks.gpu_compare import bound_of, distance
from benchmarks.gpu_context import Context
from plugins import reference
from plugins.gpu import attention_op
from plugins.gpu.attention_plan import AttentionShape, plan_attention
from plugins.gpu.launch import dtype_name, gpu_of
from plugins.spec import Phase
from tests.plugins.attention_cases import PAGE, Case, Heads, Part, make_case

PREFILL, DENOISE, COMMIT = Phase
WINDOW = 24
MIXED = [
    [Part(PREFILL, 0, 20), Part(DENOISE, 20, 16)],
    [Part(COMMIT, 37, 16), Part(DENOISE, 53, 9)],
    [Part(PREFILL, 33, 3)],
    [Part(DENOISE, 0, 16)],
]
LONG = [[Part(PREFILL, 100, 300), Part(DENOISE, 400, 64)], [Part(DENOISE, 2048, 8)]]


def _truth(case: Case) -> tuple[Tensor, Tensor]:
    """The reference's output and pool, in fp32."""
    tensors = ("q", "k", "v", "kv_pool")
    arguments = replace(case, **{n: getattr(case, n).float() for n in tensors}).arguments()
    return reference.mixed_mask_paged_attention(*arguments), arguments[3]


def _on(context: Context, case: Case) -> list[Tensor]:
    """The case's arguments on the device."""
    every = case.arguments()
    return [x.to(context.device) if isinstance(x, Tensor) else x for x in every]


def _compare(context: Context, what: str, case: Case) -> Iterator[Finding]:
    ours = _on(context, case)
    out = attention_op.mixed_mask_paged_attention(*ours)  # type: ignore[arg-type]
    expected, pool = _truth(case)
    bound = bound_of(case.q.dtype, context.interpreted)
    yield Finding(what, distance(out, expected), bound)
    yield Finding(f"{what}, pages", distance(ours[3], pool), 0.0)


def edges(context: Context) -> Iterator[Finding]:
    """Every page and window edge, in fp32, where a wrong mask cannot hide in rounding."""
    marks = [1, PAGE - 1, PAGE, PAGE + 1]
    for window in (0, WINDOW):
        for phases in ((DENOISE,), (PREFILL, COMMIT)):
            places = zip(product([0, *marks], marks), cycle(phases), strict=False)
            parts = [[Part(phase, committed, count)] for (committed, count), phase in places]
            if context.interpreted:
                parts = parts[::5]
            name = f"page edges, {phases[0].name.lower()}, window {window}"
            yield from _compare(context, name, make_case(parts, Heads(1, 1, 16), window))
    around = [WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 63, 64, 65]
    for phase in Phase:
        parts = [[Part(phase, committed, 9)] for committed in around[context.interpreted * 3 :]]
        name = f"window edges, {phase.name.lower()}"
        yield from _compare(context, name, make_case(parts, Heads(2, 1, 16), WINDOW))


def heads(
    context: Context, dtype: str, shapes: Sequence[Sequence[int]], long: bool = True
) -> Iterator[Finding]:
    """Mixed batches with (query heads, key/value heads, width, window), and long ones."""
    for query, kv, width, window in shapes[: 2 if context.interpreted else None]:
        kind = Heads(query, kv, width)
        batches = {"mixed": MIXED[3:] if context.interpreted else MIXED}
        if long and not context.interpreted:
            batches["long"] = LONG
        for name, parts in batches.items():
            case = make_case(parts, kind, window, getattr(torch, dtype))
            what = f"{name}, {query}/{kv} heads of {width}, window {window}, {dtype}"
            yield from _compare(context, what, case)


def many_segments(context: Context) -> Iterator[Finding]:
    """More segments than are looked through at a time, and padding among them."""
    count = 66 if context.interpreted else 300
    parts = [[Part(Phase(row % 3), row % 5, 1)] for row in range(count)]
    case = make_case(parts, Heads(1, 1, 16))
    padding = torch.tensor([[99, 0, 7, -3, 99]], dtype=torch.int32)
    padded = torch.cat([padding, case.segments, padding])
    if not context.interpreted:
        yield from _compare(context, f"{count} segments", case)
    ours = _on(context, replace(case, segments=padded))
    out = attention_op.mixed_mask_paged_attention(*ours)  # type: ignore[arg-type]
    yield Finding(f"{count} segments, padded", distance(out, _truth(case)[0]), bound_of(out.dtype))


def split_keys(context: Context, width: int, dtype: str) -> Iterator[Finding]:
    """Keys in spans of one tile each, merged; spans that some rows see nothing of."""
    kind = getattr(torch, dtype)
    for window in (0, WINDOW)[: 1 if context.interpreted else None]:
        parts = MIXED[1:] if context.interpreted else MIXED
        case = make_case(parts, Heads(4, 1, width), window, kind)
        q, k, v, pool, slots, segments, table = _on(context, case)[:7]
        attention_op.write_pages(k, v, pool, slots)
        shape = AttentionShape(q.shape[1], k.shape[1], q.shape[2], PAGE, window)
        plan = plan_attention(shape, dtype_name(q), gpu_of(q))
        plan = replace(plan, splits=4, span=plan.keys)
        out = attention_op.attend(q, pool, segments, table, plan)
        what = f"4 spans, width {width}, window {window}, {dtype}"
        bound = bound_of(kind, context.interpreted)
        yield Finding(what, distance(out, _truth(case)[0]), bound)


def high_pages(context: Context) -> Iterator[Finding]:
    """The last pages of a pool of more than 2^31 numbers give what its first ones give, bitwise."""
    pages, kv, width, page = (6, 1, 16, 8) if context.interpreted else (8448, 8, 256, 64)
    rows = page + 3
    pool = torch.zeros((pages, 2, page, kv, width), dtype=context.dtype, device=context.device)
    q = context.normal(rows, 2 * kv, width, std=width**-0.5)
    k, v = (context.normal(rows, kv, width, seed=seed) for seed in (1, 2))
    segments = torch.tensor([[0, rows, PREFILL, 0, 0]], dtype=torch.int32, device=context.device)
    found = []
    for first in (0, pages - 2):
        table = torch.tensor([[first, first + 1]], dtype=torch.int32, device=context.device)
        slots = torch.arange(rows, device=context.device) + first * page
        out = attention_op.mixed_mask_paged_attention(q, k, v, pool, slots, segments, table, 0)
        found.append(out)
    yield Finding(f"pages up to number {pages}", distance(found[1], found[0]), 0.0)
    yield Finding("rows of low pages", 0.0 if bool(found[0].any()) else 1.0, 0.0)
