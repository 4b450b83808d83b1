"""Compiles step and heads for the CPU with AOTInductor; all packages share one weight file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.export import ExportedProgram

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig
from build_engine.contract import Limits
from build_engine.cpu_weights import WEIGHTS_FILE, assign_weights, write_weights
from build_engine.errors import EngineError
from build_engine.export import FlatStep, export_denoise, export_head, export_step
from build_engine.model import DenoiseHead, Head
from build_engine.pt2_archive import make_reproducible
from plugins import loader

STEP_FILE, HEAD_FILE, DENOISE_FILE = "step.pt2", "head.pt2", "denoise.pt2"
_INDUCTOR = {
    # The weights live once, in weights.safetensors, mapped by the runner.
    "aot_inductor.package_constants_in_so": False,
    "cpp.dynamic_threads": True,
}


def _compile(program: ExportedProgram, path: Path) -> None:
    try:
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=_INDUCTOR
        )
    except torch._inductor.exc.InductorError as error:
        raise EngineError(f"compiling {path.name} failed: {error}") from error
    make_reproducible(path)


def build(
    checkpoint: Checkpoint,
    config: ModelConfig,
    shape: tuple[Limits, int, torch.dtype],
    directory: Path,
    report: Callable[[str], None],
) -> tuple[str, ...]:
    """Write weights.safetensors and the three packages into `directory`; returns their names.

    `shape` is (limits, page size, dtype); `report` is called with the name of each stage.
    """
    limits, page_size, dtype = shape
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    report("kernels")
    loader.load()
    report("weights")
    step, head, denoise = FlatStep(config), Head(config), DenoiseHead(config)
    write_weights(checkpoint, config, step, dtype, directory / WEIGHTS_FILE)
    tensors = load_file(str(directory / WEIGHTS_FILE))
    for model in (step, head, denoise):
        assign_weights(model, tensors)
    report("export")
    hidden_size = config.geometry.hidden_size
    programs = {
        STEP_FILE: export_step(step, limits, page_size, dtype),
        HEAD_FILE: export_head(head, hidden_size, dtype),
        DENOISE_FILE: export_denoise(denoise, hidden_size, dtype),
    }
    for name, program in programs.items():
        report(f"compile {Path(name).stem}")
        _compile(program, directory / name)
    return WEIGHTS_FILE, *programs
