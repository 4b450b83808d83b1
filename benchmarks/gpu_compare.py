"""How far a kernel's result is from the fp32 reference, and how far it may be.

The reference works in fp32 on the very numbers that the kernel gets, so what is measured is the
kernel's own rounding:

- fp32: products as three TF32 ones and sums in another order, each a few units of 1e-7, through
  exponentials of logits up to 30 (1e-5), are within 1e-4;
- fp16: results and powers round to 11 bits, 5e-4 each; a handful of them are within 4e-3;
- bf16: the same with 8 bits, 4e-3 each at the most and 2e-3 on average. Errors of many summed terms
  average out, so they are within 1e-2 of the value and the spread around it.

The interpreter cuts bf16 off where a GPU rounds, which is twice as far and always downwards.
"""

from __future__ import annotations

import torch
from torch import Tensor

BOUNDS = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 1e-2}
INTERPRETED = 2.5

LOGIT = 1e-4
"""Two logits closer than this may change places: ids are compared by their logits."""


def bound_of(dtype: torch.dtype, interpreted: bool = False) -> float:
    """The bound of `distance` for results of a dtype."""
    return BOUNDS[dtype] * (INTERPRETED if interpreted and dtype != torch.float32 else 1)


def distance(found: Tensor, truth: Tensor) -> float:
    """The largest |found - truth| / (|truth| + spread); 0 for nothing.

    The spread is the root mean square of the truth, or of its row where that is larger: a row of
    attention that sees few keys is as far from zero as their values. Infinities and NaN must stand
    where they stand in the truth; otherwise it is infinite.
    """
    if found.shape != truth.shape:
        return float("inf")
    if not found.numel():
        return 0.0
    found, truth = found.detach().double().cpu(), truth.detach().double().cpu()
    usual = truth.isfinite()
    odd = (found == truth) | (found.isnan() & truth.isnan())
    if not bool((usual | odd).all()) or not bool(found[usual].isfinite().all()):
        return float("inf")
    if not bool(usual.any()):
        return 0.0
    known = truth.where(usual, 0)
    count = usual.sum(-1, keepdim=True).clamp(min=1)
    rows = (known.square().sum(-1, keepdim=True) / count).sqrt()
    spread = rows.clamp(min=float(truth[usual].square().mean().sqrt()))
    scale = (known.abs() + spread).clamp(min=torch.finfo(torch.float32).tiny)
    return float(((found - truth).abs() / scale)[usual].max())


def shortfall(scores: Tensor, chosen: Tensor) -> float:
    """How far the scores [R, V] of the chosen ids [R] are below the best, at the most."""
    if not chosen.numel():
        return 0.0
    picked = scores.gather(1, chosen.long()[:, None].to(scores.device))[:, 0]
    return float((scores.max(-1).values - picked).max())
