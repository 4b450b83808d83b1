"""Owns the block-diffusion loss, noise and self-conditioning; must not know tickets."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DiffusionGemmaForBlockDiffusion

SLOTS_ONLY = 0.6
PURE_NOISE = 0.15
CLEAN_WEIGHT = 0.05
SELF_CONDITIONED = 0.5
PROMPT_WEIGHT = 0.3


@dataclass(frozen=True)
class Batch:
    """Samples of one prompt length and one canvas width, so that nothing is padded."""

    prompt_ids: Tensor  # [B, L] int64
    canvas_ids: Tensor  # [B, W] int64
    slots: Tensor  # [B, W] bool; a row without slots is no read


def noise_mask(batch: Batch) -> Tensor:
    """Which positions lose their token: a read's slots alone, or any position at a random rate."""
    rows, width = batch.canvas_ids.shape
    rate = torch.rand(rows, 1)
    rate[torch.rand(rows, 1) < PURE_NOISE] = 1.0
    anywhere = torch.rand(rows, width) < rate
    slots_only = batch.slots.any(1, keepdim=True) & (torch.rand(rows, 1) < SLOTS_ONLY)
    return torch.where(slots_only, batch.slots, anywhere)


def loss(model: DiffusionGemmaForBlockDiffusion, batch: Batch) -> Tensor:
    """Encodes the prompt once, denoises the canvas with or without the model's own first guess."""
    vocabulary = model.config.text_config.vocab_size
    noised = noise_mask(batch)
    random_ids = torch.randint(vocabulary, batch.canvas_ids.shape)
    canvas = torch.where(noised, random_ids, batch.canvas_ids)
    prompt = model.model.encoder(input_ids=batch.prompt_ids)
    cache = prompt.past_key_values
    with torch.no_grad():
        guess = model(decoder_input_ids=canvas, past_key_values=cache).logits
        guess = guess / torch.empty(len(guess), 1, 1).uniform_(0.4, 0.8)
    logits = model(
        decoder_input_ids=canvas,
        past_key_values=cache,
        self_conditioning_logits=guess,
        self_conditioning_mask=torch.rand(len(canvas)) < SELF_CONDITIONED,
    ).logits
    weight = noised + CLEAN_WEIGHT * ~noised
    token_loss = functional.cross_entropy(
        logits.flatten(0, 1), batch.canvas_ids.flatten(), reduction="none"
    )
    canvas_loss = (token_loss * weight.flatten()).sum() / weight.sum()
    return canvas_loss + PROMPT_WEIGHT * _next_token_loss(model, prompt.last_hidden_state, batch)


def _next_token_loss(
    model: DiffusionGemmaForBlockDiffusion, hidden: Tensor, batch: Batch
) -> Tensor:
    """What the causal pass itself can learn; without it reads stay at chance for far longer."""
    logits = model.lm_head(hidden[:, :-1]).flatten(0, 1)
    return functional.cross_entropy(logits, batch.prompt_ids[:, 1:].flatten())
