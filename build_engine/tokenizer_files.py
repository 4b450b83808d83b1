"""Copies the tokenizer beside the engine and checks that it fits the model and can be served."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError
from tokenizers import Tokenizer

from build_engine.errors import EngineError
from build_engine.json_file import read_json

DEFINITION = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
REQUIRED = (DEFINITION, CONFIG)
OPTIONAL = ("special_tokens_map.json", TEMPLATE, "generation_config.json")

# Where tokenizer_config.json does not name them; the server starts with none of them missing.
_CONTROL = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "eot_token": "<turn|>",
}


def _load(path: Path) -> Any:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise EngineError(
            f"{path} is not a tokenizer of the tokenizers library: {error}."
        ) from error


def _check_added(path: Path, tokenizer: Any) -> None:
    """The library numbers added tokens itself, whatever id the file gives them."""
    for entry in read_json(path).get("added_tokens") or ():
        found = tokenizer.token_to_id(entry["content"])
        if found != entry["id"]:
            raise EngineError(
                f"{path} gives added token {entry['content']!r} the id {entry['id']}, the "
                f"tokenizers library gives it {found}; download the checkpoint again."
            )


def _check_control(config: dict[str, Any], tokenizer: Any, checkpoint: Path) -> None:
    for key, default in _CONTROL.items():
        value = config.get(key, default)
        name = value.get("content") if isinstance(value, dict) else value
        if not isinstance(name, str) or tokenizer.token_to_id(name) is None:
            raise EngineError(
                f"{checkpoint / CONFIG}: {key} is {name!r}, which {DEFINITION} does not have; "
                "download the checkpoint again."
            )


def _check_template(config: dict[str, Any], checkpoint: Path) -> None:
    path = checkpoint / TEMPLATE
    try:
        template = path.read_text(encoding="utf-8") if path.is_file() else None
        if template is None:
            path, template = checkpoint / CONFIG, config.get("chat_template")
        if not isinstance(template, str) or not template:
            raise EngineError(
                f"checkpoint {checkpoint} has no chat template, neither {TEMPLATE} nor one text as "
                f"chat_template in {CONFIG}; use an instruction-tuned checkpoint."
            )
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}.") from error
    except TemplateError as error:
        raise EngineError(f"{path} is not a chat template: {error}.") from error


def check_tokenizer(checkpoint: Path, vocab_size: int) -> None:
    """Compare the tokenizer with the model's rows, and see that a server could start with it.

    Raises:
        EngineError: a file is missing or unreadable, the chat template or a control token is
            missing, or there are ids that the model's embedding lacks.
    """
    for name in REQUIRED:
        if not (checkpoint / name).is_file():
            raise EngineError(
                f"checkpoint {checkpoint}: {name} not found; download the whole checkpoint."
            )
    tokenizer = _load(checkpoint / DEFINITION)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if not 0 <= largest < vocab_size:
        raise EngineError(
            f"{checkpoint / DEFINITION} has token id {largest}, but "
            f"{checkpoint / 'config.json'} gives the model {vocab_size} rows; use the files of one "
            "checkpoint."
        )
    _check_added(checkpoint / DEFINITION, tokenizer)
    config = read_json(checkpoint / CONFIG)
    _check_control(config, tokenizer, checkpoint)
    _check_template(config, checkpoint)


def copy_tokenizer(checkpoint: Path, directory: Path) -> tuple[str, ...]:
    """Copy the tokenizer files; returns their names."""
    copied = [name for name in REQUIRED + OPTIONAL if (checkpoint / name).is_file()]
    for name in copied:
        shutil.copyfile(checkpoint / name, directory / name)
    return tuple(copied)
