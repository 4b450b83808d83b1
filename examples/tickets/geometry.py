"""Owns the demo model's shape, creation and saving; must not know tickets or training."""

import copy
import json
from pathlib import Path

import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from examples.tickets.tasks import CANVAS
from triton_backend.tokenizer import Tokenizer

TEXT = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_global_key_value_heads": 1,
    "global_head_dim": 64,
    "sliding_window": 128,
    "num_experts": 8,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "max_position_embeddings": 1024,
    "initializer_range": 0.06,
}
# transformers cannot build the model without a vision tower; the smallest one, never trained.
VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "patch_size": 2,
    "position_embedding_size": 8,
}
# A norm follows every sublayer, so at weight 1 each would drown the embedding it is added to.
SUBLAYER_WEIGHT = 0.25
# The released checkpoint keeps the two phases' scalars apart; so does this one, fixed before
# training at values that bf16 holds exactly.
ENCODER_SCALAR = 0.875
DECODER_SCALAR = 1.125
GENERATION = {
    "max_new_tokens": 2 * CANVAS,
    "max_denoising_steps": 48,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "t_min": 0.4,
    "t_max": 0.8,
    "stability_threshold": 1,
    "confidence_threshold": 0.005,
}


def new_model(tokenizer: Tokenizer, seed: int) -> DiffusionGemmaForBlockDiffusion:
    """A model with random weights, in fp32."""
    torch.manual_seed(seed)
    text = {
        **TEXT,
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.eos_id,
        "bos_token_id": tokenizer.bos_id,
    }
    config = DiffusionGemmaConfig(text_config=text, vision_config=VISION, canvas_length=CANVAS)
    model = DiffusionGemmaForBlockDiffusion(config)
    _start(model)
    model.set_experts_implementation("grouped_mm")
    return model


@torch.no_grad()
def _start(model: DiffusionGemmaForBlockDiffusion) -> None:
    """Starting weights from which so small a model learns within minutes."""
    decoder = model.model.decoder
    decoder.embed_tokens.weight.normal_(std=TEXT["hidden_size"] ** -0.5)
    for layer in decoder.layers:
        layer.layer_scalar.fill_(DECODER_SCALAR)
        layer.post_attention_layernorm.weight.fill_(SUBLAYER_WEIGHT)
        layer.post_feedforward_layernorm.weight.fill_(SUBLAYER_WEIGHT)
        # Attention has no 1/sqrt(d): at weight 1 every row would attend to one random key.
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.weight.fill_(layer.self_attn.head_dim**-0.25)
    for layer in model.model.encoder.language_model.layers:
        layer.layer_scalar.fill_(ENCODER_SCALAR)


def save_model(
    model: DiffusionGemmaForBlockDiffusion, tokenizer: Tokenizer, directory: Path
) -> None:
    """Writes bf16 weights, config.json and generation_config.json beside the tokenizer files."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(directory)
    special = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": [tokenizer.eos_id, tokenizer.end_of_turn_id],
    }
    text = json.dumps({**special, **GENERATION}, indent=2)
    (directory / "generation_config.json").write_text(text + "\n", encoding="utf-8")
