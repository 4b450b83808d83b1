"""What every trial of bad input asks of the builder: one sentence, exit code 1, nothing left."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from build_engine.__main__ import main
from build_engine.checkpoint import SINGLE

Change = Callable[[dict[str, Any]], object]


def edit_json(path: Path, change: Change) -> None:
    """Change a JSON file in place."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def edit_weights(directory: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a checkpoint's single file."""
    tensors = load_file(str(directory / SINGLE))
    change(tensors)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, str(directory / SINGLE))


class Refusal:
    """Runs the builder's command line and holds it to its promise."""

    def __init__(self, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.output = output
        self._capfd = capfd

    def __call__(self, checkpoint: Path, *options: str, output: Path | None = None) -> str:
        """The one sentence that a refused build says."""
        output = output or self.output
        before = _listing(output)
        self._capfd.readouterr()
        code = main(["--checkpoint", str(checkpoint), "--output", str(output), *options])
        said = self._capfd.readouterr()
        assert code == 1, said.err
        assert said.out == ""
        lines = [line for line in said.err.splitlines() if line.strip()]
        assert len(lines) == 1, said.err
        assert re.fullmatch(r"error: .{10,}\S\.", lines[0]), lines[0]
        assert "Traceback" not in lines[0]
        assert len(lines[0]) < 2000
        assert _listing(output) == before
        assert not list(output.parent.glob(".*building*"))
        return lines[0]


def _listing(path: Path) -> dict[str, bytes] | None:
    if not os.path.isdir(path):
        return {"": path.read_bytes()} if os.path.isfile(path) else None
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}
