"""Copies the tokenizer beside the engine and checks that it fits the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from build_engine.errors import EngineError

REQUIRED = ("tokenizer.json",)
OPTIONAL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def _largest_id(path: Path) -> int:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        vocab = values["model"]["vocab"]
        ids = list(vocab.values()) if isinstance(vocab, dict) else range(len(vocab))
        ids = [*ids, *(entry["id"] for entry in values.get("added_tokens", []))]
        return max(int(n) for n in ids)
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} is not a tokenizer of the tokenizers library: {error}."
        ) from error


def copy_tokenizer(checkpoint: Path, directory: Path, vocab_size: int) -> tuple[str, ...]:
    """Copy the tokenizer files; returns their names.

    Raises:
        EngineError: tokenizer.json is missing, or has ids the model's embedding lacks.
    """
    for name in REQUIRED:
        if not (checkpoint / name).is_file():
            raise EngineError(f"checkpoint {checkpoint}: {name} not found.")
    largest = _largest_id(checkpoint / "tokenizer.json")
    if largest >= vocab_size:
        raise EngineError(
            f"{checkpoint / 'tokenizer.json'} has token id {largest}, but "
            f"{checkpoint / 'config.json'} gives the model {vocab_size} rows."
        )
    copied = [name for name in REQUIRED + OPTIONAL if (checkpoint / name).is_file()]
    for name in copied:
        shutil.copyfile(checkpoint / name, directory / name)
    return tuple(copied)
