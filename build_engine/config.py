"""Reads a checkpoint's config.json and generation_config.json into the geometry the model needs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engine.config_fields import Fields
from build_engine.config_support import check_supported
from build_engine.contract import FULL, SLIDING, Geometry
from build_engine.errors import EngineError
from build_engine.json_file import read_json

_DEFAULT_ROPE: dict[str, dict[str, Any]] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
_ROPE_FIELDS = {"rope_type", "rope_theta", "partial_rotary_factor", "factor"}
_LAYER_FIELDS = {"head_dim", "num_key_value_heads"}
_MOST_LAYERS, _WIDEST_HEAD, _MOST_CANVAS = 4096, 1 << 16, 1 << 16

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of one layer type: base wavelength and rotated share of the head."""

    theta: float
    partial_factor: float
    proportional: bool


@dataclass(frozen=True)
class ModelConfig:
    """Everything of the checkpoint's configuration that the model's arithmetic depends on."""

    geometry: Geometry
    sliding_rope: Rope
    full_rope: Rope
    rms_norm_eps: float
    max_positions: int
    tied: bool
    has_vision: bool
    stop_ids: tuple[int, ...]
    pad_id: int
    bos_id: int

    def rope(self, layer: int) -> Rope:
        """Rotary embedding of one layer."""
        return self.sliding_rope if self.geometry.is_sliding(layer) else self.full_rope


def _rope(text: Fields, layer_type: str) -> Rope:
    kinds = text.inner("rope_parameters", _DEFAULT_ROPE)
    if layer_type not in kinds:
        raise EngineError(f"{kinds.where} has no entry for {layer_type!r}.")
    rope = kinds.inner(layer_type)
    kind = rope.get("rope_type", "default")
    if kind not in ("default", "proportional"):
        raise EngineError(
            f"{rope.where}: rope_type {kind!r} is not supported; supported: default, proportional."
        )
    unknown = sorted(rope.names() - _ROPE_FIELDS)
    if unknown:
        raise EngineError(
            f"{rope.where}: {', '.join(unknown)} is not known to rope_type {kind}; supported: "
            f"{', '.join(sorted(_ROPE_FIELDS))}."
        )
    if rope.positive("factor", 1.0) != 1.0:
        raise rope.refuse("factor", "1, positions are not scaled here")
    partial = rope.positive("partial_rotary_factor", 1.0, most=1.0)
    if kind == "default" and partial != 1.0:
        raise rope.refuse("partial_rotary_factor", "1 for rope_type default")
    return Rope(rope.positive("rope_theta"), partial, kind == "proportional")


def _layer_shapes(text: Fields, layers: int) -> dict[int, Fields]:
    """Head width and KV heads by layer, of those that config.json names."""
    shapes = {}
    named = text.inner("per_layer_config")
    for key in named.names():
        if not (key.isascii() and key.isdigit()) or int(key) >= layers:
            raise EngineError(f"{named.where} names layer {key!r}, the model has {layers} layers.")
        shape = named.inner(key)
        unknown = sorted(shape.names() - _LAYER_FIELDS)
        if unknown:
            raise EngineError(
                f"{shape.where}: {', '.join(unknown)} is not supported for one layer; supported: "
                f"{', '.join(sorted(_LAYER_FIELDS))}."
            )
        shapes[int(key)] = shape
    return shapes


def _attention_shape(fields: Fields, text: Fields) -> tuple[int, int]:
    head_dim = fields if "head_dim" in fields else text
    kv_heads = fields if "num_key_value_heads" in fields else text
    return (
        head_dim.whole("head_dim", 2, _WIDEST_HEAD),
        kv_heads.whole("num_key_value_heads", 1, _WIDEST_HEAD),
    )


def _full_attention_shape(text: Fields, layer_types: tuple[str, ...]) -> tuple[int, int]:
    """Head width and KV heads of the full layers, in either spelling config.json may use."""
    if text.get("per_layer_config") is None:
        kv_heads = "num_global_key_value_heads"
        if text.get(kv_heads) is None:
            kv_heads = "num_key_value_heads"
        return (
            text.whole("global_head_dim", 2, _WIDEST_HEAD, default=512),
            text.whole(kv_heads, 1, _WIDEST_HEAD),
        )
    shapes = _layer_shapes(text, len(layer_types))
    full = [n for n, kind in enumerate(layer_types) if kind == FULL]
    found = {_attention_shape(shapes.get(n, text), text) for n in full}
    extra = sorted(set(shapes) - set(full))
    if len(found) != 1 or extra:
        raise EngineError(
            f"{text.where}: per_layer_config must give all full-attention layers one shape, found "
            f"{sorted(found)}, and no other layer (found {extra})."
        )
    return found.pop()


def _layer_types(text: Fields) -> tuple[str, ...]:
    count = text.whole("num_hidden_layers", 1, _MOST_LAYERS)
    given = text.get("layer_types")
    kinds: Any = given
    if given is None:
        kinds = [FULL if (n + 1) % 6 == 0 else SLIDING for n in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count or set(map(str, kinds)) - {SLIDING, FULL}:
        raise text.refuse("layer_types", f"a list of {count} of {SLIDING} and {FULL}")
    if given and kinds[-1] != FULL:
        log.warning("the last layer is %s, built as %s as transformers does", kinds[-1], FULL)
    return (*kinds[:-1], FULL)


def _stop_ids(directory: Path, config: Fields, text: Fields, vocab_size: int) -> tuple[int, ...]:
    path = directory / "generation_config.json"
    generation = [Fields(read_json(path), path.name)] if path.is_file() else []
    for fields in (*generation, text, config):
        ids = fields.token_ids("eos_token_id", vocab_size)
        if ids:
            return ids
    raise EngineError(
        f"{path} and config.json name no eos_token_id, no answer would ever end; add it to "
        f"{path.name}."
    )


def load_config(directory: str | Path) -> ModelConfig:
    """Configuration of a checkpoint directory.

    Raises:
        EngineError: a file is missing or malformed, or the model is of a kind not supported.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise EngineError(
            f"--checkpoint {directory} is not a directory; download the checkpoint and name its "
            "directory."
        )
    path = directory / "config.json"
    config = Fields(read_json(path), path.name)
    whole = config.get("text_config") is not None
    check_supported(config, config.inner("text_config") if whole else None)
    text = config.inner("text_config")
    geometry = _geometry(config, text)
    rows = geometry.vocab_size
    return ModelConfig(
        geometry=geometry,
        sliding_rope=_rope(text, SLIDING),
        full_rope=_rope(text, FULL),
        rms_norm_eps=text.positive("rms_norm_eps", 1e-6, most=1.0),
        max_positions=text.whole("max_position_embeddings", 2, default=131_072),
        tied=all(fields.flag("tie_word_embeddings", True) for fields in (config, text)),
        has_vision=isinstance(config.get("vision_config"), dict),
        stop_ids=_stop_ids(directory, config, text, rows),
        pad_id=text.token_id("pad_token_id", rows, default=0),
        bos_id=text.token_id("bos_token_id", rows, default=2),
    )


def _geometry(config: Fields, text: Fields) -> Geometry:
    layer_types = _layer_types(text)
    full_head_dim, full_kv_heads = _full_attention_shape(text, layer_types)
    head_dim, kv_heads = _attention_shape(text, text)
    heads = text.whole("num_attention_heads", 1, _WIDEST_HEAD)
    for width, groups in ((head_dim, kv_heads), (full_head_dim, full_kv_heads)):
        if width % 2 or heads % groups:
            raise EngineError(
                f"{text.where}: {heads} attention heads of width {width} over {groups} KV heads; "
                "the width must be even, and KV heads must divide the attention heads."
            )
    experts = text.whole("num_experts", 1, 65_536)
    return Geometry(
        vocab_size=text.whole("vocab_size", 4),
        hidden_size=text.whole("hidden_size"),
        num_layers=len(layer_types),
        num_heads=heads,
        layer_types=layer_types,
        sliding_window=text.whole("sliding_window"),
        sliding_kv_heads=kv_heads,
        sliding_head_dim=head_dim,
        full_kv_heads=full_kv_heads,
        full_head_dim=full_head_dim,
        intermediate_size=text.whole("intermediate_size"),
        num_experts=experts,
        top_k_experts=text.whole("top_k_experts", 1, experts),
        moe_intermediate_size=text.whole("moe_intermediate_size"),
        canvas_length=config.whole("canvas_length", 1, _MOST_CANVAS, default=256),
        softcap=text.positive("final_logit_softcapping", 30.0),
    )
