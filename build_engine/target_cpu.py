"""Compiles step and head for the CPU with AOTInductor; both packages share one weight file."""

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
from build_engine.export import FlatStep, export_head, export_step
from build_engine.model import Head
from build_engine.pt2_archive import make_reproducible
from plugins import loader

STEP_FILE, HEAD_FILE = "step.pt2", "head.pt2"
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
    """Write weights.safetensors, step.pt2 and head.pt2 into `directory`.

    `shape` is (limits, page size, dtype); `report` is called with the name of each stage.
    """
    limits, page_size, dtype = shape
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    report("kernels")
    loader.load()
    report("weights")
    step, head = FlatStep(config), Head(config)
    write_weights(checkpoint, config, step, dtype, directory / WEIGHTS_FILE)
    tensors = load_file(str(directory / WEIGHTS_FILE))
    assign_weights(step, tensors)
    assign_weights(head, tensors)
    report("export")
    step_program = export_step(step, limits, page_size, dtype)
    head_program = export_head(head, config.geometry.hidden_size, dtype)
    report("compile step")
    _compile(step_program, directory / STEP_FILE)
    report("compile head")
    _compile(head_program, directory / HEAD_FILE)
    return WEIGHTS_FILE, STEP_FILE, HEAD_FILE
