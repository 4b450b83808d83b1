"""The model's own modules as an executor: torch launches every operation, nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from build_engine import bindings
from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.contract import EngineContract, Limits
from build_engine.model import DenoiseHead, Head, Step, StepInputs
from build_engine.weight_file import assign_weights
from build_engine.weights import read_weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_ARRAYS = len(StepInputs._fields) - 1


class EagerExecutor:
    """Step and heads over one set of weights on one device."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
        self.step, self.head, self.denoise = Step(config), Head(config), DenoiseHead(config)
        self.embedding = tensors["embed_tokens.weight"]
        self.device = self.embedding.device
        weights = {**tensors, **{n: b.to(self.device) for n, b in self.step.named_buffers()}}
        for module in (self.step, self.head, self.denoise):
            assign_weights(module, weights)
        size = config.geometry
        dtype = str(self.embedding.dtype).removeprefix("torch.")
        self._signatures = bindings.target_signatures("cuda", size, 1, dtype)

    @torch.inference_mode()
    def run(self, function: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs of one function by their binding's name."""
        given = list(inputs.values())
        if function == bindings.STEP:
            return {"hidden": self.step(StepInputs._make([*given[:_ARRAYS], given[_ARRAYS:]]))}
        module: nn.Module = self.head if function == bindings.HEAD else self.denoise
        names = [binding.name for binding in self._signatures[function].outputs]
        return dict(zip(names, module(*given), strict=True))


def contract_of(config: ModelConfig, dtype: str, page: int, limits: Limits) -> EngineContract:
    """What an engine of these modules promises; it has no files."""
    return EngineContract(
        target="cuda",
        dtype=dtype,
        page_size=page,
        geometry=config.geometry,
        limits=limits,
        stop_ids=config.stop_ids,
        pad_id=config.pad_id,
        bos_id=config.bos_id,
    )


def checkpoint_weights(
    directory: Path, config: ModelConfig, dtype: str, device: torch.device
) -> dict[str, Tensor]:
    """A checkpoint's weights by the model's names, row-major, on a device."""
    checkpoint = Checkpoint(directory)
    weights = read_weights(checkpoint, config, DTYPES[dtype])
    found = {weight.name: tensor.to(device, copy=True) for weight, tensor in weights}
    checkpoint.close()
    return found


def random_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    """Weights like those of a trained model in size, made on the device, one at a time.

    Scalars and norms are 1, and norms of queries and keys such that scores spread by one.
    """
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in Step(config).named_parameters():
        tensor = torch.empty(parameter.shape, dtype=dtype, device=device)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensor.fill_(parameter.shape[-1] ** -0.25)
        elif parameter.ndim == 1:
            tensor.fill_(1)
        else:
            tensor.normal_(0, parameter.shape[-1] ** -0.5, generator=generator)
        yield name, tensor
