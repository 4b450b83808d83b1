"""Shapes and dtypes of every op's outputs, for tracing and export."""

import torch
from torch import Tensor


def register() -> None:
    """Call after the ops are defined; safe to call again, by the library or in Python."""
    if not _registered:
        for name, fake in _FAKES.items():
            torch.library.register_fake(f"dg::{name}", fake)
        _registered.append(True)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_pool: Tensor,
    slots: Tensor,
    segments: Tensor,
    block_table: Tensor,
    window: int,
) -> Tensor:
    return q.new_empty(q.shape)


def _routed_experts(
    x: Tensor, expert_ids: Tensor, expert_weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    return x.new_empty(x.shape)


def _linear(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    return x.new_empty((x.shape[0], out_features))


def _label_head(
    hidden: Tensor, embedding: Tensor, label_ids: Tensor, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = hidden.shape[0]
    return (
        hidden.new_empty(label_ids.shape, dtype=torch.float32),
        hidden.new_empty((rows,), dtype=torch.float32),
        hidden.new_empty((rows,), dtype=torch.float32),
        hidden.new_empty((rows,), dtype=torch.int32),
    )


def _denoise_head(
    hidden: Tensor,
    embedding: Tensor,
    temperature: Tensor,
    draws: Tensor,
    softcap: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    def per_row(dtype: torch.dtype) -> Tensor:
        return hidden.new_empty((hidden.shape[0],), dtype=dtype)

    ids, floats = torch.int32, torch.float32
    statistics = (per_row(ids), per_row(ids), per_row(floats), per_row(floats), per_row(floats))
    return (*statistics, hidden.new_empty(hidden.shape))


_FAKES = {
    "mixed_mask_paged_attention": _attention,
    "routed_experts": _routed_experts,
    "linear": _linear,
    "label_head": _label_head,
    "denoise_head": _denoise_head,
}

_registered: list[bool] = []
