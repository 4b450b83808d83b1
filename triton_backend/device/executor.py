"""What the device runner asks of a target: named tensors in, named tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


class Executor(Protocol):
    """The three functions of `build_engine.bindings`, loaded on one device."""

    @property
    def device(self) -> torch.device:
        """Where inputs, outputs and pools lie."""
        ...

    @property
    def embedding(self) -> Tensor | None:
        """The token table [V, H], where the weights are at hand."""
        ...

    def run(self, function: str, inputs: Mapping[str, Tensor]) -> Tensors:
        """Outputs by binding name, without pools: those given are written in place.

        Outputs are the executor's own and hold until the function's next run. On a GPU the work
        is ordered on the current stream and may still be running.
        """
        ...
