"""The numeric oracle: transformers' own two passes, one request at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache


def _empty_cache(model: DiffusionGemmaForBlockDiffusion) -> DynamicCache:
    """A cache of zero positions, for a canvas without a prompt."""
    text = model.config.text_config
    cache = DynamicCache(config=text)
    for layer in range(text.num_hidden_layers):
        shape = text.per_layer_config[layer]
        nothing = torch.zeros(1, shape.num_key_value_heads, 0, shape.head_dim, dtype=model.dtype)
        cache.update(nothing, nothing, layer)
    return cache


@torch.no_grad()
def encode(model: DiffusionGemmaForBlockDiffusion, prompt_ids: list[int]) -> DynamicCache:
    """KV cache of a prompt, by the causal pass."""
    if not prompt_ids:
        return _empty_cache(model)
    cache = DynamicCache(config=model.config.text_config)
    model.model.encoder(input_ids=torch.tensor([prompt_ids]), past_key_values=cache)
    return cache


@torch.no_grad()
def read_logits(
    model: DiffusionGemmaForBlockDiffusion, prompt_ids: list[int], canvas_ids: list[int]
) -> Tensor:
    """Soft-capped logits [C, V] of one denoising step, by prompt pass and canvas pass."""
    cache = encode(model, prompt_ids)
    output = model(past_key_values=cache, decoder_input_ids=torch.tensor([canvas_ids]))
    return output.logits[0]
