"""Writes kernel launches into a graph that is being traced; knows no op.

Numbers of rows are symbols there, which look like numbers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import wrap_triton

from plugins.gpu import plan_text
from plugins.gpu.flat import flat, spread
from plugins.gpu.launch_plan import Plan
from plugins.gpu.tiers import Tier


def record(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], plan: Plan) -> None:
    """One launch; as `launch.launch`, for tensors that are not there yet."""
    flattened, lengths = spread(arguments)
    entry = wrap_triton(flat(kernel, lengths))
    text = plan_text.write(plan)
    entry[grid](*flattened, text, num_warps=plan.warps, num_stages=plan.stages)


def settled(tensor: Tensor) -> Tensor:
    """The tensor, contiguous and in memory, for several launches to read.

    Without it, torch's compiler would compute and store it once for each of them.
    """
    tensor = tensor.contiguous()
    return tensor.as_strided(tensor.shape, tensor.stride())


def serves(tier: Tier[Any], rows: int) -> int:
    """1 where the tier serves so many rows, else 0: a factor of its grid and of its buffers."""
    enough: int = torch.sym_min(rows // tier.first, 1) if tier.first > 1 else 1
    if tier.last is None:
        return enough
    too_many: int = torch.sym_min(rows // (tier.last + 1), 1)
    return enough * (1 - too_many)
