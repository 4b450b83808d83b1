"""The literal, total table from checkpoint tensor names to the model's weights.

A saved checkpoint holds the shared stack once, under the decoder's or the encoder's names; the
encoder's `layer_scalar` is its own. `None` marks a tensor left out on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from build_engine.checkpoint import Checkpoint, same_values
from build_engine.config import ModelConfig
from build_engine.errors import EngineError

DECODER = "model.decoder."
ENCODER = "model.encoder.language_model."
LM_HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
DROPPED_PREFIXES = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")

_DTYPES = ("F16", "BF16", "F32", "F64")
_QUANTISED_SUFFIXES = ("_scale", "_scale_inv", ".scales", ".qweight", ".qzeros", ".absmax")
_LISTED = 12
_PART = 1 << 22  # elements

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


def weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of every weight of the table."""
    return dtype.itemsize * sum(math.prod(weight.shape) for weight in weight_table(config))


def _some(found: Iterable[str], separator: str = ", ") -> str:
    """The first of them, and how many more there are: a sentence stays one."""
    listed = list(found)
    more = f"{separator}and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return separator.join(listed[:_LISTED]) + more


def _hint(unknown: list[str]) -> str:
    """What tensors that the table does not have tell of the checkpoint."""
    if any(name.endswith(_QUANTISED_SUFFIXES) for name in unknown):
        return " (of a quantised checkpoint, which is not supported; use the bf16 checkpoint)"
    if any(name.endswith("self_attn.v_proj.weight") for name in unknown):
        return " (full-attention layers have no v_proj here: their values are their keys)"
    return ""


def _problems(checkpoint: Checkpoint, table: tuple[Weight, ...]) -> Iterator[str]:
    known = {source for weight in table for source in weight.sources} | {LM_HEAD}
    unknown = [n for n in checkpoint if n not in known and not n.startswith(DROPPED_PREFIXES)]
    if unknown:
        yield f"unknown tensors: {_some(unknown)}{_hint(unknown)}"
    missing = [w for w in table if not any(source in checkpoint for source in w.sources)]
    if missing:
        yield f"missing tensors: {_some(w.sources[0] for w in missing)}"
    held = [(n, w) for w in table for n in w.sources if n in checkpoint]
    wrong = [
        f"{name} has {list(checkpoint.shape(name))}, config.json says {list(weight.shape)}"
        for name, weight in held
        if checkpoint.shape(name) != weight.shape
    ]
    if wrong:
        yield f"wrong shapes: {_some(wrong, '; ')}"
    stored = [(name, checkpoint.dtype(name)) for name, _ in held]
    odd = [f"{name} is {dtype}" for name, dtype in stored if dtype not in _DTYPES]
    if odd:
        yield f"wrong dtypes: {_some(odd)}; supported: {', '.join(_DTYPES)}, not quantised ones"


def _check_ties(checkpoint: Checkpoint, table: tuple[Weight, ...], tied: bool) -> None:
    if not tied:
        state = "there" if LM_HEAD in checkpoint else "missing"
        raise EngineError(
            f"config.json: tie_word_embeddings is false and {LM_HEAD} is {state}; only checkpoints "
            "whose head is the embedding are supported."
        )
    pairs = [weight.sources for weight in table if len(weight.sources) == 2]
    pairs += [(DECODER + EMBEDDING, LM_HEAD), (ENCODER + EMBEDDING, LM_HEAD)]
    for first, second in pairs:
        held = first in checkpoint and second in checkpoint
        if held and not same_values(checkpoint.tensor(first), checkpoint.tensor(second)):
            raise EngineError(
                f"checkpoint {checkpoint.directory}: {first} and {second} should be tied but hold "
                "different values; save the checkpoint again with its weights tied."
            )


def _check_finite(tensor: torch.Tensor, name: str, checkpoint: Checkpoint) -> None:
    """One such weight would make every answer NaN, and only answers would tell.

    Summed in fp64, which no sum of finite weights exceeds, in parts that bound the copies.
    """
    parts = tensor.flatten().split(_PART)
    if not all(torch.isfinite(part.sum(dtype=torch.float64)) for part in parts):
        raise EngineError(
            f"checkpoint {checkpoint.directory}: {name} holds NaN or infinity as {tensor.dtype}; "
            "download the checkpoint again, or build with --dtype float32 if it is larger than "
            "the dtype holds."
        )


def read_weights(
    checkpoint: Checkpoint, config: ModelConfig, dtype: torch.dtype
) -> Iterator[tuple[Weight, torch.Tensor]]:
    """Yield every weight of the table in its order, in the build's dtype, one at a time.

    Raises:
        EngineError: listing unknown, missing and misshapen tensors at once, or naming one that is
            not a finite number throughout.
    """
    table = weight_table(config)
    check_weights(checkpoint, config)
    for weight in table:
        name = source_of(checkpoint, weight)
        tensor = checkpoint.tensor(name).to(dtype)
        # Loading lazily must not leave a weight that has no values.
        assert tensor.device.type == "cpu", name
        _check_finite(tensor, name, checkpoint)
        yield weight, tensor


def check_weights(checkpoint: Checkpoint, config: ModelConfig) -> None:
    """Compare the checkpoint's tensors with the table; reads the values of tied ones only.

    Raises:
        EngineError: listing unknown, missing and misshapen tensors at once.
    """
    table = weight_table(config)
    problems = list(_problems(checkpoint, table))
    if problems:
        raise EngineError(f"checkpoint {checkpoint.directory}: " + "; ".join(problems) + ".")
    _check_ties(checkpoint, table, config.tied)


def source_of(checkpoint: Checkpoint, weight: Weight) -> str:
    """The checkpoint's name of a weight that it holds."""
    return next(name for name in weight.sources if name in checkpoint)
