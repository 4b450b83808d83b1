"""The literal, total table from checkpoint tensor names to the model's weights.

A saved checkpoint holds the shared stack once, under the decoder's or the encoder's names; the
encoder's `layer_scalar` is its own. `None` marks a tensor left out on purpose.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.errors import EngineError

DECODER = "model.decoder."
ENCODER = "model.encoder.language_model."
LM_HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
DROPPED_PREFIXES = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")

_LAYER = {
    "input_layernorm.weight": ("hidden",),
    "post_attention_layernorm.weight": ("hidden",),
    "pre_feedforward_layernorm.weight": ("hidden",),
    "pre_feedforward_layernorm_2.weight": ("hidden",),
    "post_feedforward_layernorm.weight": ("hidden",),
    "post_feedforward_layernorm_1.weight": ("hidden",),
    "post_feedforward_layernorm_2.weight": ("hidden",),
    "self_attn.q_proj.weight": ("queries", "hidden"),
    "self_attn.k_proj.weight": ("keys", "hidden"),
    "self_attn.o_proj.weight": ("hidden", "queries"),
    "self_attn.q_norm.weight": ("head",),
    "self_attn.k_norm.weight": ("head",),
    "mlp.gate_proj.weight": ("dense", "hidden"),
    "mlp.up_proj.weight": ("dense", "hidden"),
    "mlp.down_proj.weight": ("hidden", "dense"),
    "router.proj.weight": ("experts", "hidden"),
    "router.scale": ("hidden",),
    "router.per_expert_scale": ("experts",),
    "experts.gate_up_proj": ("experts", "two_expert", "hidden"),
    "experts.down_proj": ("experts", "hidden", "expert"),
    "layer_scalar": ("one",),
}
_SLIDING_ONLY = {"self_attn.v_proj.weight": ("keys", "hidden")}
_TOP = {
    EMBEDDING: ("vocab", "hidden"),
    "norm.weight": ("hidden",),
    "self_conditioning.pre_norm.weight": ("hidden",),
    "self_conditioning.gate_proj.weight": ("dense", "hidden"),
    "self_conditioning.up_proj.weight": ("dense", "hidden"),
    "self_conditioning.down_proj.weight": ("hidden", "dense"),
}


@dataclass(frozen=True)
class Weight:
    """One weight of the model: our name, the checkpoint names that may hold it, its shape."""

    name: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]


def _sizes(config: ModelConfig, layer: int) -> dict[str, int]:
    geometry = config.geometry
    return {
        "one": 1,
        "vocab": geometry.vocab_size,
        "hidden": geometry.hidden_size,
        "queries": geometry.num_heads * geometry.head_dim(layer),
        "keys": geometry.kv_heads(layer) * geometry.head_dim(layer),
        "head": geometry.head_dim(layer),
        "dense": geometry.intermediate_size,
        "experts": geometry.num_experts,
        "expert": geometry.moe_intermediate_size,
        "two_expert": 2 * geometry.moe_intermediate_size,
    }


def weight_table(config: ModelConfig) -> tuple[Weight, ...]:
    """Every weight the model needs, in a fixed order."""
    sizes = _sizes(config, 0)
    table = [
        Weight(name, (DECODER + name, ENCODER + name), tuple(sizes[s] for s in shape))
        for name, shape in _TOP.items()
    ]
    for layer in range(config.geometry.num_layers):
        sizes = _sizes(config, layer)
        entries = _LAYER | (_SLIDING_ONLY if config.geometry.is_sliding(layer) else {})
        for leaf, shape in entries.items():
            name = f"layers.{layer}.{leaf}"
            tied = leaf != "layer_scalar"
            sources = (DECODER + name, ENCODER + name) if tied else (DECODER + name,)
            table.append(Weight(name, sources, tuple(sizes[s] for s in shape)))
        scalar = f"layers.{layer}.encoder_layer_scalar"
        source = f"{ENCODER}layers.{layer}.layer_scalar"
        table.append(Weight(scalar, (source,), (1,)))
    return tuple(table)


def _problems(checkpoint: Checkpoint, table: tuple[Weight, ...]) -> Iterator[str]:
    known = {source for weight in table for source in weight.sources} | {LM_HEAD}
    unknown = [n for n in checkpoint if n not in known and not n.startswith(DROPPED_PREFIXES)]
    if unknown:
        yield f"unknown tensors: {', '.join(unknown)}"
    missing = [w for w in table if not any(source in checkpoint for source in w.sources)]
    if missing:
        yield f"missing tensors: {', '.join(w.sources[0] for w in missing)}"
    wrong = [
        f"{source} has {list(checkpoint.shape(source))}, config.json says {list(weight.shape)}"
        for weight in table
        for source in weight.sources
        if source in checkpoint and checkpoint.shape(source) != weight.shape
    ]
    if wrong:
        yield f"wrong shapes: {'; '.join(wrong)}"


def _check_ties(checkpoint: Checkpoint, table: tuple[Weight, ...], tied: bool) -> None:
    if not tied:
        raise EngineError(
            "config.json: tie_word_embeddings is false; an untied lm_head is not supported."
        )
    pairs = [weight.sources for weight in table if len(weight.sources) == 2]
    pairs += [(DECODER + EMBEDDING, LM_HEAD), (ENCODER + EMBEDDING, LM_HEAD)]
    for first, second in pairs:
        if first in checkpoint and second in checkpoint:
            one, other = checkpoint.tensor(first), checkpoint.tensor(second)
            if one.shape != other.shape or not torch.equal(one, other):
                raise EngineError(
                    f"checkpoint: {first} and {second} should be tied but hold different values."
                )


def read_weights(
    checkpoint: Checkpoint, config: ModelConfig, dtype: torch.dtype
) -> Iterator[tuple[Weight, torch.Tensor]]:
    """Yield every weight of the table in its order, in the build's dtype, one at a time.

    Raises:
        EngineError: listing all unknown, missing and misshapen tensors at once.
    """
    table = weight_table(config)
    problems = list(_problems(checkpoint, table))
    if problems:
        raise EngineError(f"checkpoint {checkpoint.directory}: " + "; ".join(problems) + ".")
    _check_ties(checkpoint, table, config.tied)
    for weight in table:
        yield weight, checkpoint.tensor(source_of(checkpoint, weight)).to(dtype)


def save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file.

    Raises:
        OSError: it cannot be written; safetensors has an error of its own for that.
    """
    try:
        save_file(tensors, str(path))
    except SafetensorError as error:
        raise OSError(errno.EIO, f"{path.name}: {error}") from error


def source_of(checkpoint: Checkpoint, weight: Weight) -> str:
    """The checkpoint's name of a weight that it holds."""
    return next(name for name in weight.sources if name in checkpoint)
