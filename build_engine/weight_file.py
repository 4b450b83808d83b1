"""The one weight file of a compiled engine: written for its kernels, and given to the models."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.errors import EngineError
from build_engine.safetensors_file import Stored, write_safetensors
from build_engine.weights import Weight, read_weights, weight_table
from plugins.layout import pack_panels

WEIGHTS_FILE = "weights.safetensors"


def write_weights(
    checkpoint: Checkpoint,
    config: ModelConfig,
    model: nn.Module,
    dtype: torch.dtype,
    path: Path,
    packed: Mapping[str, int],
) -> None:
    """Write every weight and constant of `model`: those named in `packed` in panels, with so many
    parts stacked in each, all others as they are in the checkpoint.
    """
    # Wider constants first, for their alignment; then the weights, one in memory at a time.
    constants = sorted(model.named_buffers(), key=lambda pair: -pair[1].itemsize)
    layout = [Stored(name, value.dtype, tuple(value.shape)) for name, value in constants]
    layout += [
        Stored(weight.name, dtype, _shape(weight, dtype, packed)) for weight in weight_table(config)
    ]
    weights = (_laid_out(*found, packed) for found in read_weights(checkpoint, config, dtype))
    write_safetensors(path, layout, chain((value for _, value in constants), weights))


def _shape(weight: Weight, dtype: torch.dtype, packed: Mapping[str, int]) -> tuple[int, ...]:
    empty = torch.empty(weight.shape, dtype=dtype, device="meta")
    return tuple(_laid_out(weight, empty, packed).shape)


def _laid_out(weight: Weight, tensor: Tensor, packed: Mapping[str, int]) -> Tensor:
    if weight.name not in packed:
        return tensor
    try:
        return pack_panels(tensor, packed[weight.name])
    except ValueError as error:
        raise EngineError(f"{weight.name}: {error}; build it with --dtype float32.") from error


def assign_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give a model its weights by name without copying them; a packed one changes its shape."""
    for prefix, module in model.named_modules():
        stem = f"{prefix}." if prefix else ""
        for name in list(module._parameters):
            parameter = nn.Parameter(tensors[stem + name], requires_grad=False)
            module.register_parameter(name, parameter)
        for name in list(module._buffers):
            module.register_buffer(name, tensors[stem + name])
