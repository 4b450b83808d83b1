"""Owns the block-diffusion loss, noise and self-conditioning; must not know tickets."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache, DiffusionGemmaForBlockDiffusion

SLOTS_ONLY = 0.7
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


def noise_mask(batch: Batch, slots_only: float) -> Tensor:
    """Which positions lose their token: a read's slots alone, or any position at a random rate."""
    rows, width = batch.canvas_ids.shape
    rate = torch.rand(rows, 1)
    rate[torch.rand(rows, 1) < PURE_NOISE] = 1.0
    anywhere = torch.rand(rows, width) < rate
    slots_alone = batch.slots.any(1, keepdim=True) & (torch.rand(rows, 1) < slots_only)
    return torch.where(slots_alone, batch.slots, anywhere)


def first_loss(model: DiffusionGemmaForBlockDiffusion, batch: Batch) -> Tensor:
    """Plain one-step reads, and what the causal pass itself can learn of the prompts.

    Without the latter, reads stay at chance for far longer.
    """
    noise = noise_mask(batch, slots_only=1.0)
    prompt = model.model.encoder(input_ids=batch.prompt_ids)
    logits = _denoise(model, batch, noise, prompt.past_key_values, self_conditioned=False)
    return _mean(_token_loss(logits, batch), noise) + _next_token_loss(
        model, prompt.last_hidden_state, batch
    )


def full_loss(model: DiffusionGemmaForBlockDiffusion, batch: Batch, rng: random.Random) -> Tensor:
    """Reads and replies at every noise rate, half of them after the model's own first guess."""
    noise = noise_mask(batch, SLOTS_ONLY)
    prompt = model.model.encoder(input_ids=batch.prompt_ids)
    guess = rng.random() < SELF_CONDITIONED
    logits = _denoise(model, batch, noise, prompt.past_key_values, self_conditioned=guess)
    # Noised slots count twice: among a canvas's many easy tokens their gradient would be lost.
    weight = noise + CLEAN_WEIGHT * ~noise + 1.0 * batch.slots * noise
    next_token_loss = _next_token_loss(model, prompt.last_hidden_state, batch)
    return _mean(_token_loss(logits, batch), weight) + PROMPT_WEIGHT * next_token_loss


def _denoise(
    model: DiffusionGemmaForBlockDiffusion,
    batch: Batch,
    noise: Tensor,
    cache: Cache,
    self_conditioned: bool,
) -> Tensor:
    """Logits of one step over the canvas with uniform ids at the noised positions."""
    random_ids = torch.randint(model.config.text_config.vocab_size, batch.canvas_ids.shape)
    canvas = torch.where(noise, random_ids, batch.canvas_ids)
    guess = None
    if self_conditioned:
        with torch.no_grad():
            first = model(decoder_input_ids=canvas, past_key_values=cache).logits
            guess = first / torch.empty(len(canvas), 1, 1).uniform_(0.4, 0.8)
    return model(
        decoder_input_ids=canvas, past_key_values=cache, self_conditioning_logits=guess
    ).logits


def _token_loss(logits: Tensor, batch: Batch) -> Tensor:
    flat = functional.cross_entropy(
        logits.flatten(0, 1), batch.canvas_ids.flatten(), reduction="none"
    )
    return flat.view_as(batch.canvas_ids)


def _mean(token_loss: Tensor, weight: Tensor) -> Tensor:
    return (token_loss * weight).sum() / weight.sum()


def _next_token_loss(
    model: DiffusionGemmaForBlockDiffusion, hidden: Tensor, batch: Batch
) -> Tensor:
    logits = model.lm_head(hidden[:, :-1]).flatten(0, 1)
    return functional.cross_entropy(logits, batch.prompt_ids[:, 1:].flatten())
