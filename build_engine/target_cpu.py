"""Compiles step and heads for the CPU with AOTInductor; all packages share one weight file."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.export import ExportedProgram

from build_engine.cpu_weights import WEIGHTS_FILE, assign_weights, write_weights
from build_engine.errors import EngineError
from build_engine.export import FlatStep, export_denoise, export_head, export_step
from build_engine.job import Job, Options
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


def identity(options: Options) -> dict[str, object]:  # noqa: ARG001
    """A package runs with the torch that compiled it, on CPUs that offer as much."""
    return {"cpu_capability": torch.backends.cpu.get_cpu_capability()}


def problems(dtype: str, options: Options) -> list[str]:  # noqa: ARG001
    """Options of other targets."""
    found = []
    if options.weightless:
        found.append("--weightless is for --target onnx, a cpu engine holds its weights")
    if options.compute_capabilities:
        found.append("--compute-capability is for GPU targets, not for --target cpu")
    return found


def build(job: Job) -> tuple[str, ...]:
    """Write weights.safetensors and the three packages; returns their names."""
    config, dtype = job.config, job.torch_dtype
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    job.report("kernels")
    loader.load()
    job.report("weights")
    step, head, denoise = FlatStep(config), Head(config), DenoiseHead(config)
    write_weights(job.checkpoint, config, step, dtype, job.directory / WEIGHTS_FILE)
    tensors = load_file(str(job.directory / WEIGHTS_FILE))
    for model in (step, head, denoise):
        assign_weights(model, tensors)
    job.report("export")
    hidden_size = config.geometry.hidden_size
    programs = {
        STEP_FILE: export_step(step, job.limits, job.page_size, dtype),
        HEAD_FILE: export_head(head, hidden_size, dtype),
        DENOISE_FILE: export_denoise(denoise, hidden_size, dtype),
    }
    for name, program in programs.items():
        job.report(f"compile {Path(name).stem}")
        _compile(program, job.directory / name)
    return WEIGHTS_FILE, *programs
