"""What one target is asked to build, and which module builds it; knows no target's libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.contract import Limits
from build_engine.errors import EngineError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# By name, so that a build imports the libraries of its own target and of no other.
TARGETS = {
    "cpu": "build_engine.target_cpu",
    "cuda": "build_engine.target_cuda",
    "onnx": "build_engine.target_onnx",
    "tensorrt": "build_engine.target_tensorrt",
    "tensorrt-rtx": "build_engine.target_rtx",
}
EXTRAS = {"cuda": "gpu", "onnx": "onnx", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt-rtx"}
"""The optional dependencies of the project that a target needs."""


@dataclass(frozen=True)
class Options:
    """What only some targets take."""

    weightless: bool = False
    compute_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One build: what to read, what to make of it, and where to write its files.

    `report` is called with the name of each stage.
    """

    checkpoint: Checkpoint
    config: ModelConfig
    limits: Limits
    page_size: int
    dtype: str
    options: Options
    directory: Path
    report: Callable[[str], None]

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of weights, activations and pools."""
        return DTYPES[self.dtype]


class Target(Protocol):
    """What the module of a target offers."""

    def identity(self, options: Options) -> dict[str, object]:
        """What of this machine and these options decides the engine, for its contract."""
        ...

    def problems(self, dtype: str, options: Options) -> list[str]:
        """What this target cannot do of what is asked."""
        ...

    def build(self, job: Job) -> tuple[str, ...]:
        """Writes the engine's files into the job's directory; returns their names."""
        ...


def target(name: str) -> Target:
    """The module of a target.

    Raises:
        EngineError: a package that the target needs is not installed.
    """
    try:
        module: Target = importlib.import_module(TARGETS[name])
    except ImportError as error:
        if name not in EXTRAS:
            raise
        raise EngineError(
            f"--target {name} needs packages that are not all here ({error}); install them with "
            f"`pip install 'diffusiongemma-triton[{EXTRAS[name]}]'`, on Python 3.11 or 3.12."
        ) from error
    return module
