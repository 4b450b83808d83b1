"""Renders the model repository: a copy of the templates with this launch's parameters filled in.

Knows the shape of a config.pbtxt parameter, not what any parameter means.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from triton_backend.launch_error import LaunchError

TEMPLATES = Path(__file__).resolve().parents[1] / "model_repo"
_PARAMETER = re.compile(
    r'(?P<head>parameters\s*:?\s*\{\s*key\s*:\s*"(?P<name>\w+)"\s*,?\s*'
    r'value\s*:?\s*\{\s*string_value\s*:\s*)"(?P<value>(?:[^"\\]|\\.)*)"'
)


def render(directory: Path, parameters: Mapping[str, str], templates: Path = TEMPLATES) -> Path:
    """Copies `templates` into `directory` and sets every parameter where it is declared."""
    repository = directory / "model_repo"
    shutil.copytree(templates, repository, ignore=shutil.ignore_patterns("__pycache__"))
    declared: set[str] = set()
    for config in sorted(repository.glob("*/config.pbtxt")):
        text = config.read_text(encoding="utf-8")
        declared |= {match["name"] for match in _PARAMETER.finditer(text)}
        config.write_text(fill(text, parameters), encoding="utf-8")
    if unknown := sorted(set(parameters) - declared):
        known = ", ".join(sorted(declared)) or "none"
        raise LaunchError(f"Unknown parameter {', '.join(unknown)}; the models declare {known}.")
    return repository


def fill(text: str, parameters: Mapping[str, str]) -> str:
    """The configuration text with the given parameters' values replaced."""

    def replaced(match: re.Match[str]) -> str:
        value = parameters.get(match["name"])
        # A JSON string is a valid protobuf text string, whatever the path holds.
        return match[0] if value is None else match["head"] + json.dumps(value, ensure_ascii=False)

    return _PARAMETER.sub(replaced, text)
