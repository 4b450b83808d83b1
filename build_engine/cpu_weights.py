"""Which of the model's weights the CPU kernels read in panels."""

from __future__ import annotations

from torch import nn

from build_engine.layers import Experts, Linear


def packed_parts(model: nn.Module) -> dict[str, int]:
    """Names of the weights that the CPU kernels read in panels, with the parts stacked in each."""
    names = {}
    for prefix, module in model.named_modules():
        if isinstance(module, Linear):
            names[f"{prefix}.weight"] = 1
        elif isinstance(module, Experts):
            names |= {f"{prefix}.gate_up_proj": 2, f"{prefix}.down_proj": 1}
    return names
