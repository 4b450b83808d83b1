"""Compiles step and heads for the CPU with AOTInductor, around the C++ kernels."""

from __future__ import annotations

import torch

from build_engine import aoti
from build_engine.cpu_weights import packed_parts
from build_engine.job import Job, Options
from plugins import loader

_INDUCTOR: dict[str, object] = {"cpp.dynamic_threads": True}


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
    job.report("kernels")
    loader.load()
    job.report("weights")
    made = aoti.functions(job)
    aoti.write_and_load(job, made, packed_parts(made.step))
    job.report("export")
    return aoti.compile_packages(job, aoti.export(job, made), _INDUCTOR)
