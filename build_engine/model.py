"""DiffusionGemma defined once, on ragged rows with the phase a property of the row.

`Step` and `Head` are the two functions an engine compiles. Semantics: transformers'
`DiffusionGemmaForBlockDiffusion`, encoder and decoder passes in one execution.
"""

from __future__ import annotations

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


class Step(nn.Module):
    """All layers over N rows of any mix of phases; returns normed hidden states of `output_rows`.

    Inputs: token_ids, positions, slots_* int64 [N]; phases int32 [N]; segments int32 [S, 5];
    table_* int32 [B, P]; soft [C, H] self-conditioning vectors, the first all zero, of which row n
    takes soft_index[n] (int64 [N]); output_rows int64 [R]; one KV pool [pages, 2, page, kv_heads, head_dim] a layer, updated in place.
    Output: [R, H].
    """

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

    def embed(self, token_ids: Tensor, soft_index: Tensor, soft: Tensor, denoise: Tensor) -> Tensor:
        """Input embeddings: prompt rows plain, canvas rows self-conditioned and normed."""
        rows = self.embed_tokens(token_ids)
        conditioned = rows + self.self_conditioning(soft)[soft_index]
        return torch.where(denoise, rms_norm(conditioned, self.config.rms_norm_eps), rows)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        phases: Tensor,
        slots_sliding: Tensor,
        slots_full: Tensor,
        segments: Tensor,
        table_sliding: Tensor,
        table_full: Tensor,
        soft_index: Tensor,
        soft: Tensor,
        output_rows: Tensor,
        kv_pools: list[Tensor],
    ) -> Tensor:
        denoise = (phases == int(Phase.DENOISE))[:, None]
        h = self.embed(token_ids, soft_index, soft, denoise)
        geometry = self.config.geometry
        sliding = rotary_tables(positions, self.sliding_frequencies, h.dtype)
        full = rotary_tables(positions, self.full_frequencies, h.dtype)
        last = geometry.num_layers - 1
        for n, layer in enumerate(self.layers):
            is_sliding = geometry.is_sliding(n)
            pages = (
                kv_pools[n],
                slots_sliding if is_sliding else slots_full,
                segments,
                table_sliding if is_sliding else table_full,
            )
            attended = layer.attend(h, sliding if is_sliding else full, pages)
            if n == last:
                # After the last attention rows no longer meet: only the wanted ones go on.
                h, attended = h[output_rows], attended[output_rows]
                denoise = denoise[output_rows]
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
