"""DiffusionGemma defined once, on ragged rows with the phase a property of the row.

`Step`, `Head` and `DenoiseHead` are the functions an engine compiles. Semantics: transformers'
`DiffusionGemmaForBlockDiffusion`, encoder and decoder passes in one execution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from build_engine.config import ModelConfig
from build_engine.layers import (
    GatedMLP,
    Layer,
    RMSNorm,
    rms_norm,
    rotary_frequencies,
    rotary_tables,
    weight,
)
from plugins.spec import Phase


class SelfConditioning(GatedMLP):
    """Gated MLP over the previous step's soft embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.geometry.hidden_size, config.geometry.intermediate_size)
        self.pre_norm = RMSNorm(config.geometry.hidden_size, config.rms_norm_eps)

    def forward(self, soft: Tensor) -> Tensor:
        return super().forward(self.pre_norm(soft))


class Embedding(nn.Module):
    """The token table, shared by the input and the tied head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = weight(config.geometry.vocab_size, config.geometry.hidden_size)
        self.scale = config.geometry.hidden_size**0.5

    def forward(self, token_ids: Tensor) -> Tensor:
        rows = F.embedding(token_ids, self.weight)
        return rows * torch.tensor(self.scale, dtype=rows.dtype)


class StepInputs(NamedTuple):
    """One execution: N rows, S segments, B table rows of P pages, C soft vectors, R outputs."""

    token_ids: Tensor  # int64 [N]
    positions: Tensor  # int64 [N]
    phases: Tensor  # int32 [N]
    slots_sliding: Tensor  # int64 [N]
    slots_full: Tensor  # int64 [N]
    segments: Tensor  # int32 [S, 5]
    table_sliding: Tensor  # int32 [B, P]
    table_full: Tensor  # int32 [B, P]
    soft_index: Tensor  # int64 [N], the self-conditioning vector a row takes
    soft: Tensor  # [C, H], the first all zero
    output_rows: Tensor  # int64 [R]
    kv_pools: list[Tensor]  # per layer [pages, 2, page, kv_heads, head_dim], updated in place


class Step(nn.Module):
    """All layers over rows of any mix of phases; returns normed hidden states of `output_rows`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        geometry = config.geometry
        self.config = config
        self.embed_tokens = Embedding(config)
        self.self_conditioning = SelfConditioning(config)
        self.layers = nn.ModuleList(Layer(config, n) for n in range(geometry.num_layers))
        self.norm = RMSNorm(geometry.hidden_size, config.rms_norm_eps)
        sliding = rotary_frequencies(config.sliding_rope, geometry.sliding_head_dim)
        full = rotary_frequencies(config.full_rope, geometry.full_head_dim)
        self.register_buffer("sliding_frequencies", sliding)
        self.register_buffer("full_frequencies", full)

    def embed(self, inputs: StepInputs, denoise: Tensor) -> Tensor:
        """Input embeddings: prompt rows plain, canvas rows self-conditioned and normed."""
        rows = self.embed_tokens(inputs.token_ids)
        conditioned = rows + self.self_conditioning(inputs.soft)[inputs.soft_index]
        return torch.where(denoise, rms_norm(conditioned, self.config.rms_norm_eps), rows)

    def forward(self, inputs: StepInputs) -> Tensor:
        """Hidden states [R, H]; writes the K/V of every row into the pools."""
        denoise = (inputs.phases == int(Phase.DENOISE))[:, None]
        h = self.embed(inputs, denoise)
        geometry = self.config.geometry
        sliding = rotary_tables(inputs.positions, self.sliding_frequencies, h.dtype)
        full = rotary_tables(inputs.positions, self.full_frequencies, h.dtype)
        last = geometry.num_layers - 1
        for n, layer in enumerate(self.layers):
            if geometry.is_sliding(n):
                tables, slots, pages = sliding, inputs.slots_sliding, inputs.table_sliding
            else:
                tables, slots, pages = full, inputs.slots_full, inputs.table_full
            attended = layer.attend(h, tables, (inputs.kv_pools[n], slots, inputs.segments, pages))
            if n == last:
                # After the last attention rows no longer meet: only the wanted ones go on.
                h, attended = h[inputs.output_rows], attended[inputs.output_rows]
                denoise = denoise[inputs.output_rows]
            h = layer.finish(h, attended, denoise)
        return self.norm(h)


class Head(nn.Module):
    """Reads label logits and whole-vocabulary statistics at temperature 1 from hidden rows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config)
        self.softcap = config.geometry.softcap

    def forward(self, hidden: Tensor, label_ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Label logits [R, K], log-sum-exp [R], entropy [R] (nats), argmax [R] of hidden [R, H]."""
        return torch.ops.dg.label_head(hidden, self.embed_tokens.weight, label_ids, self.softcap)


class DenoiseHead(nn.Module):
    """Reads everything a denoising step decides by from hidden rows, without keeping logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config)
        self.softcap = config.geometry.softcap

    def forward(self, hidden: Tensor, temperature: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
        """Statistics of hidden rows [R, H], each at its temperature f32 [R]; all but `soft` [R].

        Returns argmax int32, candidate int32 (drawn from the softmax), entropy f32 (nats), f32
        log-probabilities of the argmax (at temperature 1) and of the candidate, and what `Step`
        takes as `soft` in the next step [R, H]. Draws int64 [R, 3] are seed, position and step
        (`plugins.spec`): the same ones give the same candidate, whatever else is in the call.
        """
        scale = _in_dtype(self.embed_tokens.scale, hidden.dtype)
        return torch.ops.dg.denoise_head(
            hidden, self.embed_tokens.weight, temperature, draws, self.softcap, scale
        )


def _in_dtype(value: float, dtype: torch.dtype) -> float:
    """The value as a tensor of that dtype holds it, worked out without one, as export needs it."""
    digits = 1 - round(math.log2(torch.finfo(dtype).eps))
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, digits)), exponent - digits)
