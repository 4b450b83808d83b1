"""Starts a kernel on torch tensors, compiled or interpreted; knows no op."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from plugins.gpu.device import ELEMENT_BYTES, Gpu
from plugins.gpu.launch_plan import Plan


def launch(kernel: Any, grid: tuple[int, ...], arguments: Sequence[Any], plan: Plan) -> None:
    if 0 not in grid:
        kernel[grid](*arguments, plan, num_warps=plan.warps, num_stages=plan.stages)


def dtype_name(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in ELEMENT_BYTES:
        raise ValueError(f"the tensor is {name}; it must be one of {', '.join(ELEMENT_BYTES)}")
    return name


def gpu_of(tensor: Tensor) -> Gpu:
    """The tensor's GPU; off a GPU, where the interpreter runs, one without much to share."""
    return _gpu(tensor.device) if tensor.is_cuda else Gpu(80, 1)


@lru_cache
def _gpu(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    return Gpu(10 * properties.major + properties.minor, properties.multi_processor_count)
