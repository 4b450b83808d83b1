"""Both heads against the same work composed of torch's operations, which hold all logits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks import gpu_peers
from benchmarks.gpu_cases import Finding, Timed
from benchmarks.gpu_compare import bound_of, distance
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import denoise_head as denoise_work
from benchmarks.gpu_counts import label_head as label_work
from plugins.gpu.heads_op import denoise_head, label_head


def _table(context: Context, rows: int) -> tuple[Tensor, Tensor]:
    """Hidden rows and a token table whose logits spread by about three."""
    geometry = context.sizes.geometry
    width = geometry.hidden_size
    table = context.normal(geometry.vocab_size, width, std=3 * width**-0.5, seed=1)
    return context.normal(rows, width), table


def label(context: Context, rows: int) -> Iterator[Finding | Timed]:
    """The read head with eight labels a row."""
    rows = min(rows, 8) if context.interpreted else rows
    geometry = context.sizes.geometry
    hidden, table = _table(context, rows)
    labels = torch.arange(8, dtype=torch.int32, device=context.device).repeat(rows, 1)
    arguments = (hidden, table, labels, geometry.softcap)
    group = f"label head, {rows} rows"
    exact = gpu_peers.label_head(hidden[:16].float(), table.float(), labels[:16], geometry.softcap)
    found = label_head(*arguments)
    for name, ours, truth in zip(("labels", "log-sum-exp", "entropy"), found, exact, strict=False):
        yield Finding(f"{group}, {name}", distance(ours[:16], truth), bound_of(context.dtype))
    del exact
    work = label_work(geometry, rows)
    yield context.timed(group, "dg", lambda: label_head(*arguments), work)
    yield context.timed(group, "torch", lambda: gpu_peers.label_head(*arguments), work)


def denoise(context: Context, rows: int) -> Iterator[Finding | Timed]:
    """The head of a denoising step at temperature 0.6."""
    rows = min(rows, 8) if context.interpreted else rows
    geometry = context.sizes.geometry
    hidden, table = _table(context, rows)
    temperature = torch.full((rows,), 0.6, device=context.device)
    draws = torch.arange(3 * rows, device=context.device).reshape(rows, 3)
    scale = float(geometry.hidden_size**0.5)
    cap = geometry.softcap
    group = f"denoise head, {rows} rows"
    few = (hidden[:16].float(), table.float(), temperature[:16])
    exact = gpu_peers.denoise_head(*few, cap, scale)
    found = denoise_head(hidden, table, temperature, draws, cap, scale)
    for index, name in ((2, "entropy"), (3, "log probability"), (5, "soft embedding")):
        error = distance(found[index][:16], exact[index])
        yield Finding(f"{group}, {name}", error, bound_of(context.dtype, context.interpreted))
    del few, exact, found
    work = denoise_work(geometry, rows)
    ours = (hidden, table, temperature, draws, cap, scale)
    yield context.timed(group, "dg", lambda: denoise_head(*ours), work)
    peers = (hidden, table, temperature, cap, scale)
    yield context.timed(group, "torch", lambda: gpu_peers.denoise_head(*peers), work)
