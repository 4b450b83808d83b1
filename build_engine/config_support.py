"""Says which checkpoints are of a kind this project does not build, before any size is read."""

from __future__ import annotations

from build_engine.config_fields import Fields
from build_engine.errors import EngineError

ARCHITECTURES = ("DiffusionGemmaForBlockDiffusion",)
_MODEL_TYPE, _TEXT_MODEL_TYPE = "diffusion_gemma", "diffusion_gemma_text"
_QUANTISED = ("quantization_config", "compression_config")

_ALLOWED: dict[str, tuple[object, ...]] = {
    "hidden_activation": ("gelu_pytorch_tanh",),
    "attention_bias": (False,),
    "use_bidirectional_attention": (None, "vision"),
    # Full-attention layers take their values from the key projection.
    "attention_k_eq_v": (None, True),
    # What transformers' class has no code for, and would pass over in silence.
    "num_kv_shared_layers": (None, 0),
    "attn_logit_softcapping": (None,),
    "rope_scaling": (None,),
}


def check_supported(config: Fields, text: Fields | None) -> None:
    """Refuse what would build into another model than its publisher trained.

    `text` is None where config.json has no text_config.

    Raises:
        EngineError: naming the field and its value.
    """
    found = config.get("architectures")
    if not isinstance(found, list) or found[:1] != list(ARCHITECTURES):
        raise EngineError(
            f"{config.where}: architecture {found!r} (model_type {config.get('model_type')!r}) is "
            f"not supported; supported: {', '.join(ARCHITECTURES)}."
        )
    if text is None:
        raise EngineError(
            f"{config.where}: text_config is missing (model_type {config.get('model_type')!r}); "
            "--checkpoint needs the whole model's config.json, not that of its text part."
        )
    _check_kind(config, _MODEL_TYPE)
    _check_kind(text, _TEXT_MODEL_TYPE)
    for key, allowed in _ALLOWED.items():
        if key in text and not any(text.get(key) is one or text.get(key) == one for one in allowed):
            raise EngineError(
                f"{text.where}: {key} is {text.get(key)!r}, supported: "
                f"{', '.join(map(str, allowed))}."
            )


def _check_kind(fields: Fields, wanted: str) -> None:
    if fields.get("model_type", wanted) != wanted:
        raise EngineError(
            f"{fields.where}: model_type is {fields.get('model_type')!r}, supported: {wanted}."
        )
    for key in _QUANTISED:
        if fields.get(key) is not None:
            raise EngineError(
                f"{fields.where}: {key} is present; quantised checkpoints are not supported yet, "
                "use the bf16 checkpoint."
            )
