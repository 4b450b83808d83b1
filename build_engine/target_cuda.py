"""Compiles step and heads for the NVIDIA GPU of this machine, around the Triton-language kernels.

Their launches are part of each package, for any number of rows. It runs wherever torch's C++
library, the CUDA driver and a GPU of the same kind are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
import triton

from build_engine import aoti, bindings
from build_engine.errors import EngineError
from build_engine.export import most_rows
from build_engine.job import Job, Options
from plugins.gpu import register
from plugins.gpu.device import Gpu
from plugins.gpu.launch import gpu_of
from plugins.gpu.lowering import Lowering
from plugins.gpu.tiers import Build

_LEAST_CAPABILITY = 80
INDUCTOR: dict[str, object] = {
    # Kernels are compiled, and tuned if torch has a choice, now and not when a package is loaded.
    "triton.autotune_at_compile_time": True,
    # Triton's own takes an empty grid, as the launches of other tiers have.
    "use_static_triton_launcher": False,
}


def identity(options: Options) -> dict[str, object]:  # noqa: ARG001
    """A package runs with the torch that compiled it, on GPUs of the same kind.

    Raises:
        EngineError: this machine has none.
    """
    problem = _absence()
    if problem:
        raise EngineError(f"{problem}.")
    here = _gpu()
    sources = sorted(Path(register.__file__).parent.glob("*.py"))
    kernels = b"".join(path.read_bytes() for path in sources)
    return {
        "kernels": hashlib.sha256(kernels).hexdigest(),
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "compute_capabilities": [f"{here.capability // 10}.{here.capability % 10}"],
        "multiprocessors": here.processors,
    }


def problems(dtype: str, options: Options) -> list[str]:  # noqa: ARG001
    """Options of other targets, and what this machine lacks."""
    found = []
    if options.weightless:
        found.append("--weightless is for --target onnx, a cuda engine holds its weights")
    if options.compute_capabilities:
        found.append(
            "--compute-capability is for --target tensorrt-rtx, a cuda engine is for the GPU of "
            "the machine that builds it"
        )
    if absence := _absence():
        found.append(absence)
    return found


def _absence() -> str:
    """Why no engine can be built here, or nothing."""
    if torch.version.cuda is None:
        return (
            f"--target cuda needs a torch built for CUDA, torch {torch.__version__} is not; "
            "install one of the same release"
        )
    if not torch.cuda.is_available():
        return "--target cuda needs an NVIDIA GPU and its driver, and torch sees none"
    capability = _gpu().capability
    if capability < _LEAST_CAPABILITY:
        return (
            f"--target cuda needs a GPU of compute capability 8.0 or above, this one has "
            f"{capability // 10}.{capability % 10}"
        )
    return ""


def _gpu() -> Gpu:
    return gpu_of(torch.empty(0, device="cuda"))


def build_of(job: Job, here: Gpu) -> Build:
    """What the kernels' launches are chosen for."""
    most = bindings.dynamic_sizes(job.limits, job.page_size)
    return Build(here, most_rows(job.limits), most["pages_per_row"] * job.page_size)


def build(job: Job) -> tuple[str, ...]:
    """Write weights.safetensors and the three packages; returns their names."""
    job.report("kernels")
    register.register()
    job.report("weights")
    made = aoti.functions(job)
    aoti.write_and_load(job, made, packed={}, device="cuda")
    job.report("export")
    with torch.device("cuda"), Lowering(build_of(job, _gpu())):
        programs = aoti.export(job, made)
    return aoti.compile_packages(job, programs, INDUCTOR)
