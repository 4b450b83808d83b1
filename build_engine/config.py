"""Reads a checkpoint's config.json and generation_config.json into the geometry the model needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engine.contract import FULL, SLIDING, Geometry
from build_engine.errors import EngineError

ARCHITECTURES = ("DiffusionGemmaForBlockDiffusion",)
_DEFAULT_ROPE: dict[str, dict[str, Any]] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}


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


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        EngineError: no such file, or it is not a JSON object.
    """
    if not path.is_file():
        raise EngineError(f"checkpoint file {path} not found.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise EngineError(f"{path} is not a JSON object.")
    return values


def _rope(text: dict[str, Any], layer_type: str) -> Rope:
    values = (text.get("rope_parameters") or _DEFAULT_ROPE).get(layer_type)
    if not isinstance(values, dict):
        raise EngineError(f"config.json: rope_parameters has no entry for {layer_type!r}.")
    kind = values.get("rope_type", "default")
    if kind not in ("default", "proportional"):
        raise EngineError(
            f"config.json: rope_type {kind!r} of {layer_type} is not supported "
            "(default, proportional)."
        )
    return Rope(
        theta=float(values["rope_theta"]),
        partial_factor=float(values.get("partial_rotary_factor", 1.0)),
        proportional=kind == "proportional",
    )


def _full_layer_overrides(text: dict[str, Any], layer_types: tuple[str, ...]) -> tuple[int, int]:
    """Head width and KV heads of the full layers, in either spelling config.json may use."""
    head_dim = text.get("global_head_dim", 512)
    kv_heads = text.get("num_global_key_value_heads") or text["num_key_value_heads"]
    per_layer = text.get("per_layer_config")
    if per_layer is None:
        return int(head_dim), int(kv_heads)
    shapes = {int(layer): values for layer, values in per_layer.items()}
    full = [n for n, kind in enumerate(layer_types) if kind == FULL]
    found = {
        (
            int(shapes.get(n, {}).get("head_dim", text["head_dim"])),
            int(shapes.get(n, {}).get("num_key_value_heads", text["num_key_value_heads"])),
        )
        for n in full
    }
    extra = sorted(set(shapes) - set(full))
    if len(found) != 1 or extra:
        raise EngineError(
            f"config.json: per_layer_config must give all full-attention layers one shape, found "
            f"{sorted(found)}, and no other layer (found {extra})."
        )
    return found.pop()


def _layer_types(text: dict[str, Any]) -> tuple[str, ...]:
    count = int(text["num_hidden_layers"])
    kinds = text.get("layer_types") or [FULL if (n + 1) % 6 == 0 else SLIDING for n in range(count)]
    kinds = [*kinds[:-1], FULL]
    unknown = sorted(set(kinds) - {SLIDING, FULL})
    if unknown or len(kinds) != count:
        raise EngineError(
            f"config.json: layer_types must name {count} layers as {SLIDING} or {FULL}; "
            f"found {len(kinds)} layers, unknown kinds {unknown}."
        )
    return tuple(kinds)


def _check_supported(config: dict[str, Any], text: dict[str, Any]) -> None:
    found = config.get("architectures")
    if not found or found[0] not in ARCHITECTURES:
        raise EngineError(
            f"config.json: architecture {found!r} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}."
        )
    quantised = config.get("quantization_config") or text.get("quantization_config")
    if quantised:
        raise EngineError(
            "config.json: quantization_config is present; quantised checkpoints are not supported "
            "yet, use the bf16 checkpoint."
        )
    refused = {
        "hidden_activation": ("gelu_pytorch_tanh",),
        "attention_bias": (False,),
        "use_bidirectional_attention": (None, "vision"),
    }
    for key, allowed in refused.items():
        if key in text and text[key] not in allowed:
            raise EngineError(f"config.json: {key} = {text[key]!r}, supported: {list(allowed)}.")


def _stop_ids(directory: Path, text: dict[str, Any]) -> tuple[int, ...]:
    path = directory / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    ids = generation.get("eos_token_id", text.get("eos_token_id", 1))
    return tuple(int(n) for n in (ids if isinstance(ids, list) else [ids]) if n is not None)


def load_config(directory: str | Path) -> ModelConfig:
    """Configuration of a checkpoint directory.

    Raises:
        EngineError: a file is missing or malformed, or the model is of a kind not supported.
    """
    directory = Path(directory)
    config = read_json(directory / "config.json")
    text = config.get("text_config")
    if not isinstance(text, dict):
        text = config
    _check_supported(config, text)
    try:
        return _model_config(directory, config, text)
    except KeyError as error:
        raise EngineError(f"config.json: text_config lacks {error}.") from error


def _model_config(directory: Path, config: dict[str, Any], text: dict[str, Any]) -> ModelConfig:
    layer_types = _layer_types(text)
    full_head_dim, full_kv_heads = _full_layer_overrides(text, layer_types)
    geometry = Geometry(
        vocab_size=int(text["vocab_size"]),
        hidden_size=int(text["hidden_size"]),
        num_layers=len(layer_types),
        num_heads=int(text["num_attention_heads"]),
        layer_types=layer_types,
        sliding_window=int(text["sliding_window"]),
        sliding_kv_heads=int(text["num_key_value_heads"]),
        sliding_head_dim=int(text["head_dim"]),
        full_kv_heads=full_kv_heads,
        full_head_dim=full_head_dim,
        intermediate_size=int(text["intermediate_size"]),
        num_experts=int(text["num_experts"]),
        top_k_experts=int(text["top_k_experts"]),
        moe_intermediate_size=int(text["moe_intermediate_size"]),
        canvas_length=int(config.get("canvas_length", 256)),
        softcap=float(text.get("final_logit_softcapping", 30.0)),
    )
    return ModelConfig(
        geometry=geometry,
        sliding_rope=_rope(text, SLIDING),
        full_rope=_rope(text, FULL),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        max_positions=int(text.get("max_position_embeddings", 131_072)),
        tied=bool(config.get("tie_word_embeddings", True)),
        has_vision=isinstance(config.get("vision_config"), dict),
        stop_ids=_stop_ids(directory, text),
        pad_id=int(text.get("pad_token_id") or 0),
        bos_id=int(text["bos_token_id"] if text.get("bos_token_id") is not None else 2),
    )
