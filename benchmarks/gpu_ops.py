"""Makes torch's `dg::` ops run the GPU kernels, on a GPU or interpreted; knows no case."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import library

from plugins.gpu import register
from plugins.gpu.attention_op import mixed_mask_paged_attention
from plugins.gpu.experts_op import routed_experts
from plugins.gpu.heads_op import denoise_head, label_head

KERNELS: dict[str, Callable[..., object]] = {
    "linear": register.linear,
    "routed_experts": routed_experts,
    "label_head": label_head,
    "denoise_head": denoise_head,
    "mixed_mask_paged_attention": mixed_mask_paged_attention,
}


def register_ops(interpreted: bool) -> None:
    """Call once; interpreted kernels take the place of the C++ ones, which are not loaded."""
    register.register()
    if interpreted:
        for name, kernel in KERNELS.items():
            library.impl(f"dg::{name}", "cpu", kernel)


def try_launch(device: torch.device) -> None:
    """One small launch, so that a machine on which no kernel can start says so at once.

    Raises:
        RuntimeError: of whatever kind Triton, its C compiler or the driver choose.
    """
    x = torch.ones(2, 16, device=device)
    found = label_head(x, x, torch.zeros(2, 1, dtype=torch.int32, device=device), 30.0)
    if not bool(found[1].isfinite().all()):
        raise RuntimeError("a first kernel gave no finite numbers")
