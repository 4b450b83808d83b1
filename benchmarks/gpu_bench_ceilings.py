"""What this very device gives: the bandwidth of a copy, the rate of a bf16 product."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.gpu_cases import Timed
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import Work

COPY, MATMUL = "copy", "matmul"
GROUP = "ceilings"


def ceilings(context: Context) -> Iterator[Timed]:
    """Both, each large enough that launches do not count."""
    yield _copy(context)
    yield _product(context)


def _copy(context: Context) -> Timed:
    count = 1 << (12 if context.interpreted else 30)
    source = torch.zeros(count, dtype=context.dtype, device=context.device)
    target = torch.empty_like(source)
    work = Work(2 * source.nbytes, 0)
    return context.timed(GROUP, COPY, lambda: target.copy_(source), work)


def _product(context: Context) -> Timed:
    size = 64 if context.interpreted else 8192
    left, right = context.normal(size, size), context.normal(size, size, seed=1)
    out = torch.empty_like(left)
    work = Work(3 * left.nbytes, 2 * size**3)
    return context.timed(GROUP, MATMUL, lambda: torch.mm(left, right.T, out=out), work)
