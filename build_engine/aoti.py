"""Step and heads as AOTInductor packages over one weight file, on any device; knows no kernel."""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.export import ExportedProgram

from build_engine.errors import EngineError
from build_engine.export import FlatStep, export_denoise, export_head, export_step
from build_engine.job import Job
from build_engine.model import DenoiseHead, Head
from build_engine.pt2_archive import make_reproducible
from build_engine.weight_file import WEIGHTS_FILE, assign_weights, write_weights

STEP_FILE, HEAD_FILE, DENOISE_FILE = "step.pt2", "head.pt2", "denoise.pt2"

Programs = dict[str, ExportedProgram]
"""By the name of the file that each is compiled into."""


@dataclass(frozen=True)
class Functions:
    """What an engine compiles, without weights until they are loaded."""

    step: FlatStep
    head: Head
    denoise: DenoiseHead


def functions(job: Job) -> Functions:
    """The functions of a job's checkpoint."""
    config = job.config
    return Functions(FlatStep(config), Head(config), DenoiseHead(config))


def write_and_load(
    job: Job, made: Functions, packed: Mapping[str, int], device: str = "cpu"
) -> None:
    """Write weights.safetensors, the `packed` ones in panels, and give the functions what it holds.

    On the CPU that is the file itself, mapped into memory.
    """
    path = job.directory / WEIGHTS_FILE
    write_weights(job.checkpoint, job.config, made.step, job.torch_dtype, path, packed)
    tensors = load_file(str(path), device=device)
    for model in (made.step, made.head, made.denoise):
        assign_weights(model, tensors)


def export(job: Job, made: Functions) -> Programs:
    """Every function with all batch sizes dynamic."""
    dtype, hidden_size = job.torch_dtype, job.config.geometry.hidden_size
    return {
        STEP_FILE: export_step(made.step, job.limits, job.page_size, dtype),
        HEAD_FILE: export_head(made.head, hidden_size, dtype),
        DENOISE_FILE: export_denoise(made.denoise, hidden_size, dtype),
    }


def compile_packages(job: Job, programs: Programs, settings: dict[str, object]) -> tuple[str, ...]:
    """Write a package of each program; `settings` are Inductor's. Returns the files' names.

    The weights live once, in the weight file, and are given to the packages by who runs them.
    """
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    for name, program in programs.items():
        job.report(f"compile {Path(name).stem}")
        _compile(program, job.directory / name, settings)
    return WEIGHTS_FILE, *programs


def _compile(program: ExportedProgram, path: Path, settings: dict[str, object]) -> None:
    outside = {"aot_inductor.package_constants_in_so": False}
    # To memory first: where the disk is full, torch's own writer of files ends the process.
    package = io.BytesIO()
    try:
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs={**settings, **outside}
        )
    except (torch._inductor.exc.InductorError, torch._inductor.exc.CppCompileError) as error:
        full = "No space left" in str(error)
        where = f"; the compiler needs room in {tempfile.gettempdir()}" if full else ""
        raise EngineError(f"compiling {path.name} failed: {error}{where}.") from error
    path.write_bytes(package.getvalue())
    make_reproducible(path)
