"""Lays the model's weights out for the CPU kernels and writes them to one safetensors file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.layers import Experts, Linear
from build_engine.weights import Weight, read_weights, save_tensors
from plugins.layout import pack_panels

WEIGHTS_FILE = "weights.safetensors"


def packed_parts(model: nn.Module) -> dict[str, int]:
    """Names of the weights that the CPU kernels read in panels, with the parts stacked in each."""
    names = {}
    for prefix, module in model.named_modules():
        if isinstance(module, Linear):
            names[f"{prefix}.weight"] = 1
        elif isinstance(module, Experts):
            names |= {f"{prefix}.gate_up_proj": 2, f"{prefix}.down_proj": 1}
    return names


def _laid_out(
    weights: Iterator[tuple[Weight, Tensor]], packed: dict[str, int]
) -> Iterator[tuple[str, Tensor]]:
    for weight, tensor in weights:
        if weight.name in packed:
            yield weight.name, pack_panels(tensor, packed[weight.name])
        else:
            yield weight.name, tensor.contiguous()


def write_weights(
    checkpoint: Checkpoint, config: ModelConfig, model: nn.Module, dtype: torch.dtype, path: Path
) -> None:
    """Write every weight and constant of `model`, packed where the kernels want panels."""
    tensors = dict(_laid_out(read_weights(checkpoint, config, dtype), packed_parts(model)))
    tensors.update({name: buffer.contiguous() for name, buffer in model.named_buffers()})
    save_tensors(tensors, path)


def assign_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give a model its weights by name without copying them; a packed one changes its shape."""
    for prefix, module in model.named_modules():
        stem = f"{prefix}." if prefix else ""
        for name in list(module._parameters):
            parameter = nn.Parameter(tensors[stem + name], requires_grad=False)
            module.register_parameter(name, parameter)
        for name in list(module._buffers):
            module.register_buffer(name, tensors[stem + name])
