"""What the checkpoint's generation_config.json asks for; a request may change any of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from build_engine.errors import EngineError
from triton_backend.options import DENOISING, Range

FILE = "generation_config.json"
_ALLOWED = DENOISING | {"max_new_tokens": Range(1, 2**31 - 1)}


@dataclass(frozen=True)
class GenerationDefaults:
    """Names and default values are those of transformers' DiffusionGemmaGenerationConfig."""

    max_new_tokens: int = 256
    max_denoising_steps: int = 48
    entropy_bound: float = 0.1
    t_min: float = 0.4
    t_max: float = 0.8
    stability_threshold: int = 1
    confidence_threshold: float = 0.005


def load_defaults(directory: Path) -> GenerationDefaults:
    """The defaults of an engine directory; those of transformers where the file is silent.

    Raises:
        EngineError: the file is no JSON object, holds a value that no request could ask for, or
            asks for another sampler.
    """
    path = directory / FILE
    if not path.is_file():
        return GenerationDefaults()
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sampler = found.get("sampler_config") or {}
        kind = sampler.get("_cls_name", "EntropyBoundSamplerConfig")
    except (OSError, ValueError, AttributeError) as error:
        raise EngineError(f"{path} cannot be read: {error}.") from error
    if kind != "EntropyBoundSamplerConfig":
        raise EngineError(f"{path}: sampler {kind} is not supported, EntropyBoundSamplerConfig is.")
    given = {**found, **sampler}
    kinds = {name: type(value) for name, value in asdict(GenerationDefaults()).items()}
    known = {name: given[name] for name in kinds if given.get(name) is not None}
    try:
        values = {name: kinds[name](value) for name, value in known.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise EngineError(f"{path}: {error}.") from error
    for name, value in values.items():
        if not _ALLOWED[name].holds(value):
            raise EngineError(f"{path}: {name} is {value}, allowed are values {_ALLOWED[name]}.")
    return GenerationDefaults(**values)
