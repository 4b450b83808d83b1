"""Small random DiffusionGemma checkpoints in Hugging Face layout, made with transformers itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
)

# Puts every boundary (window 16, page 8, canvas 16, context 128) within reach of short prompts.
TINY: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 16,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 40,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": [1, 106, 50],
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "patch_size": 4,
    "position_embedding_size": 8,
}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn>"
    "{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
    "{{ message['content'] }}<turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn>model\n{% endif %}"
)


def make_model(
    seed: int = 0, canvas_length: int = 16, **overrides: Any
) -> DiffusionGemmaForBlockDiffusion:
    """A random model in fp32 whose every parameter and buffer differs from its default."""
    text = DiffusionGemmaTextConfig(**{**TINY, **overrides})
    config = DiffusionGemmaConfig(
        text_config=text, vision_config=Gemma4VisionConfig(**_VISION), canvas_length=canvas_length
    )
    torch.manual_seed(seed)
    model = DiffusionGemmaForBlockDiffusion(config).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "vision" in name or "inv_freq" in name or "embed_scale" in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("layer_scalar"):
                tensor.copy_(1.0 + 0.2 * noise)
            elif "q_norm" in name or "k_norm" in name:
                # Attention logits of unit spread, as trained norms give; at weight 1 they spread by
                # sqrt(head_dim), and fp32 itself then differs from fp64 by whole logits.
                tensor.copy_((1.0 + 0.1 * noise) * tensor.shape[-1] ** -0.25)
            elif "norm" in name or name.endswith("scale"):
                tensor.copy_(1.0 + 0.1 * noise)
            else:
                tensor.copy_(noise * tensor.shape[-1] ** -0.5)
    return model


def _tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level tokenizer: control tokens, then one token a byte, then unused ids."""
    special = {0: "<pad>", 1: "<eos>", 2: "<bos>", 50: "<|turn>", 106: "<turn|>"}
    free = iter(n for n in range(vocab_size) if n not in special)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: next(free) for symbol in alphabet}
    vocab.update({text: n for n, text in special.items()})
    vocab.update({f"<unused{n}>": n for n in free if n < vocab_size - 3})
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special.values()))
    return tokenizer


def make_checkpoint(
    directory: Path,
    seed: int = 0,
    canvas_length: int = 16,
    dtype: torch.dtype | None = None,
    **overrides: Any,
) -> Path:
    """Save a random checkpoint with tokenizer and chat template; returns the directory."""
    model = make_model(seed, canvas_length, **overrides)
    if dtype is not None:
        model = model.to(dtype)
    model.save_pretrained(directory)
    _tokenizer(model.config.text_config.vocab_size).save(str(directory / "tokenizer.json"))
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(special))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    generation = json.loads((directory / "generation_config.json").read_text())
    generation["eos_token_id"] = [1, 106, 50]
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2))
    return directory
