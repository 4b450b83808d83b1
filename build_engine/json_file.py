"""Reads the JSON files of a checkpoint strictly; knows no field of any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from build_engine.errors import EngineError

LARGEST = 256 << 20
"""Bytes; a tokenizer of 262,144 tokens takes 32 MiB."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return values


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; no key twice, no NaN.

    Raises:
        EngineError: no such file, or it is not such an object.
    """
    if not path.is_file():
        raise EngineError(f"checkpoint file {path} not found; download the whole checkpoint.")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes, more than {LARGEST}")
        text = path.read_text(encoding="utf-8")
        values = json.loads(text, object_pairs_hook=_once, parse_constant=_not_a_number)
    except RecursionError as error:
        raise EngineError(f"{path} is not valid JSON: nested too deep.") from error
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise EngineError(f"{path} is not a JSON object.")
    return values
