"""Builds TensorRT-RTX plans of step and heads on any machine, from the ONNX graphs, plugin-free."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from build_engine import bindings, target_onnx
from build_engine.bindings import Range
from build_engine.contract import DTYPE_BYTES
from build_engine.errors import EngineError
from build_engine.job import Job, Options
from build_engine.onnx_model import save
from build_engine.rtx_builder import COMPUTE_CAPABILITIES, VERSION, build_plan
from build_engine.rtx_graph import rewrite
from build_engine.rtx_plan import check_plan

DEFAULT_CAPABILITIES = ("8.6", "8.9", "12.0", "12.1")
_SCORE_BYTES = 4 << 30


def identity(options: Options) -> dict[str, object]:
    """A plan loads in the release that built it, on GPUs it was built for."""
    graph = target_onnx.identity(dataclasses.replace(options, compute_capabilities=()))
    capabilities = list(options.compute_capabilities or DEFAULT_CAPABILITIES)
    return {**graph, "tensorrt_rtx": VERSION, "compute_capabilities": capabilities}


def problems(dtype: str, options: Options) -> list[str]:
    """GPUs that TensorRT-RTX does not know, and dtypes that they do not."""
    found = []
    if options.weightless:
        found.append("--weightless is for --target onnx, a tensorrt-rtx engine holds its weights")
    for capability in options.compute_capabilities:
        if capability not in COMPUTE_CAPABILITIES:
            known = ", ".join(COMPUTE_CAPABILITIES)
            found.append(
                f"--compute-capability {capability} is not one of {known}, which are those of "
                f"TensorRT-RTX {VERSION}"
            )
        elif dtype == "bfloat16" and float(capability) < 8.0:
            found.append(f"--dtype bfloat16 needs --compute-capability 8.0, not {capability}")
    return found


def sizes(job: Job) -> dict[str, Range]:
    """The range of every dynamic size.

    Raises:
        EngineError: attention within these limits would hold more than this graph may.
    """
    geometry, limits = job.config.geometry, job.limits
    most = bindings.target_sizes(bindings.TENSORRT_RTX, geometry, limits, job.page_size)
    keys = most["pages_per_row"] * job.page_size + most["lanes"]
    scores = most["segments"] * most["lanes"] * geometry.num_heads * keys * DTYPE_BYTES[job.dtype]
    if scores > _SCORE_BYTES:
        raise EngineError(
            f"--target tensorrt-rtx pads every segment to the longest, and {most['segments']} "
            f"segments of {most['lanes']} rows over {keys} keys need {scores >> 30} GiB of scores, "
            f"more than {_SCORE_BYTES >> 30}; lower --max-segments, --max-step-tokens or "
            "--max-context."
        )
    return bindings.profiles(bindings.TENSORRT_RTX, geometry, limits, job.page_size)[0]


def build(job: Job) -> tuple[str, ...]:
    """Write a plan of each function, read back and compared with what it should be."""
    ranges, names = sizes(job), []
    wanted = bindings.target_signatures(
        bindings.TENSORRT_RTX, job.config.geometry, job.page_size, job.dtype
    )
    capabilities = job.options.compute_capabilities or DEFAULT_CAPABILITIES
    with tempfile.TemporaryDirectory(dir=job.directory, prefix="onnx-") as work:
        inner = dataclasses.replace(job, directory=Path(work))
        for name, model in target_onnx.graphs(inner).items():
            path = Path(work) / f"{name}.onnx"
            save(rewrite(name, model, wanted[name]), path)
            plan = job.directory / f"{name}.engine"
            plan.write_bytes(build_plan(path, wanted[name], ranges, capabilities, job.report))
            check_plan(plan, wanted[name], VERSION)
            names.append(plan.name)
    return tuple(names)
