"""The parts of one transformer layer on ragged rows; matrix products go through `dg` ops."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from build_engine.config import ModelConfig, Rope


def weight(*shape: int) -> nn.Parameter:
    """An unfilled weight; the builder assigns its values."""
    return nn.Parameter(torch.empty(*shape, device="meta"), requires_grad=False)


def rms_norm(x: Tensor, eps: float, scale: Tensor | None = None) -> Tensor:
    """RMSNorm over the last axis in fp32: x * rsqrt(mean(x^2) + eps) [* scale]."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (normed if scale is None else normed * scale.float()).to(x.dtype)


class RMSNorm(nn.Module):
    """RMSNorm with a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = weight(size)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.eps, self.weight)


class Linear(nn.Module):
    """Bias-free projection; the weight may be row-major or packed in panels."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = weight(out_features, in_features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.dg.linear(x, self.weight, self.out_features)


class GatedMLP(nn.Module):
    """down(gelu_tanh(gate(x)) * up(x))."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, width)
        self.up_proj = Linear(hidden, width)
        self.down_proj = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.gelu(self.gate_proj(x), approximate="tanh")
        return self.down_proj(gate * self.up_proj(x))


class Router(nn.Module):
    """Chooses top-k experts per row from the raw residual."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        geometry = config.geometry
        self.eps = config.rms_norm_eps
        self.top_k = geometry.top_k_experts
        self.root = geometry.hidden_size**-0.5
        self.proj = Linear(geometry.hidden_size, geometry.num_experts)
        self.scale = weight(geometry.hidden_size)
        self.per_expert_scale = weight(geometry.num_experts)

    def forward(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Expert ids [N, K] and fp32 weights [N, K] for rows [N, H]."""
        scores = self.proj(rms_norm(residual, self.eps) * self.scale * self.root)
        top, ids = torch.topk(torch.softmax(scores.float(), dim=-1), self.top_k, dim=-1)
        return ids, top / top.sum(dim=-1, keepdim=True) * self.per_expert_scale[ids]


class Experts(nn.Module):
    """Packed routed experts with a gelu-tanh gate."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        geometry = config.geometry
        experts, hidden = geometry.num_experts, geometry.hidden_size
        width = geometry.moe_intermediate_size
        self.gate_up_proj = weight(experts, 2 * width, hidden)
        self.down_proj = weight(experts, hidden, width)

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        return torch.ops.dg.routed_experts(
            x, ids, weights.float(), self.gate_up_proj, self.down_proj
        )


def rotary_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Inverse frequencies [head_dim / 2] in fp32; 0 for the channels that do not rotate."""
    rotated = int(rope.partial_factor * head_dim // 2)
    exponent = torch.arange(0, 2 * rotated, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponent)
    return F.pad(frequencies, (0, head_dim // 2 - rotated))


def rotary_tables(
    positions: Tensor, frequencies: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin [N, 1, head_dim] of positions [N]."""
    angles = positions.float()[:, None] * frequencies[None, :]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of [N, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * tables[0] + torch.cat((-second, first), dim=-1) * tables[1]


class Attention(nn.Module):
    """Projections, per-head norms and RoPE around the mixed-mask paged attention op."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        geometry = config.geometry
        self.eps = config.rms_norm_eps
        self.window = geometry.window(layer)
        self.heads, self.kv_heads = geometry.num_heads, geometry.kv_heads(layer)
        self.head_dim = geometry.head_dim(layer)
        hidden, keys = geometry.hidden_size, self.kv_heads * self.head_dim
        self.q_proj = Linear(hidden, self.heads * self.head_dim)
        self.k_proj = Linear(hidden, keys)
        self.v_proj = Linear(hidden, keys) if geometry.is_sliding(layer) else None
        self.o_proj = Linear(self.heads * self.head_dim, hidden)
        self.q_norm = RMSNorm(self.head_dim, self.eps)
        self.k_norm = RMSNorm(self.head_dim, self.eps)

    def attend(self, x: Tensor, tables: tuple[Tensor, Tensor], pages: tuple[Tensor, ...]) -> Tensor:
        """Attention output [N, heads * head_dim] before the output projection.

        `pages` is (kv_pool, slots, segments, block_table) of this layer's KV group.
        """
        kv_pool, slots, segments, block_table = pages
        q = rotate(self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.head_dim))), tables)
        key = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
        value = key if self.v_proj is None else self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        k = rotate(self.k_norm(key), tables)
        v = rms_norm(value, self.eps)
        out = torch.ops.dg.mixed_mask_paged_attention(
            q, k, v, kv_pool, slots, segments, block_table, self.window
        )
        return out.flatten(1)


class Layer(nn.Module):
    """One layer: attention, dense MLP beside routed experts, and the phase's layer scalar."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        geometry = config.geometry
        hidden, eps = geometry.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config, layer)
        self.mlp = GatedMLP(hidden, geometry.intermediate_size)
        self.router = Router(config)
        self.experts = Experts(config)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.pre_feedforward_layernorm = RMSNorm(hidden, eps)
        self.pre_feedforward_layernorm_2 = RMSNorm(hidden, eps)
        self.post_feedforward_layernorm = RMSNorm(hidden, eps)
        self.post_feedforward_layernorm_1 = RMSNorm(hidden, eps)
        self.post_feedforward_layernorm_2 = RMSNorm(hidden, eps)
        self.layer_scalar = weight(1)
        self.encoder_layer_scalar = weight(1)

    def attend(self, h: Tensor, tables: tuple[Tensor, Tensor], pages: tuple[Tensor, ...]) -> Tensor:
        """Attention of the layer over rows [N, H], before the output projection."""
        return self.self_attn.attend(self.input_layernorm(h), tables, pages)

    def finish(self, h: Tensor, attended: Tensor, denoise: Tensor) -> Tensor:
        """The rest of the layer, row by row; `denoise` [N, 1] picks the layer scalar."""
        h = h + self.post_attention_layernorm(self.self_attn.o_proj(attended))
        dense = self.post_feedforward_layernorm_1(self.mlp(self.pre_feedforward_layernorm(h)))
        ids, weights = self.router(h)
        routed = self.experts(self.pre_feedforward_layernorm_2(h), ids, weights)
        routed = self.post_feedforward_layernorm_2(routed)
        h = h + self.post_feedforward_layernorm(dense + routed)
        return h * torch.where(denoise, self.layer_scalar, self.encoder_layer_scalar)
