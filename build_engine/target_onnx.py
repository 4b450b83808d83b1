"""Writes step and heads as ONNX graphs over one weight file; each op is a node with a body."""

from __future__ import annotations

import importlib.metadata

import onnx

from build_engine import bindings
from build_engine.job import Job, Options
from build_engine.onnx_model import finish, save
from build_engine.onnx_program import denoise_graph, head_graph, step_graph
from build_engine.onnx_weights import WEIGHTS_FILE, write_weights
from plugins.onnx_domain import OPSET

_PACKAGES = ("onnx", "onnxscript", "onnx-ir")


def identity(options: Options) -> dict[str, object]:
    """The exporters' versions decide the graph; the machine does not."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {**versions, "opset": OPSET, "weightless": options.weightless}


def problems(dtype: str, options: Options) -> list[str]:  # noqa: ARG001
    """Options of other targets."""
    if options.compute_capabilities:
        return ["--compute-capability is for GPU targets, not for --target onnx"]
    return []


def graphs(job: Job) -> dict[str, onnx.ModelProto]:
    """The three models by name; writes the weights they point to."""
    job.report("weights")
    weights = write_weights(job)
    geometry = job.config.geometry
    signatures = {
        bindings.STEP: bindings.step(geometry, job.page_size, job.dtype),
        bindings.HEAD: bindings.head(geometry, job.dtype),
        bindings.DENOISE: bindings.denoise(geometry, job.dtype),
    }
    exports = {
        bindings.STEP: step_graph,
        bindings.HEAD: head_graph,
        bindings.DENOISE: denoise_graph,
    }
    made = {}
    for name, export in exports.items():
        job.report(f"export {name}")
        made[name] = finish(export(job), signatures[name], weights, job.dtype)
    return made


def build(job: Job) -> tuple[str, ...]:
    """Write the weights, unless they stay in the checkpoint, and the three graphs."""
    weightless = job.options.weightless
    names = [] if weightless else [WEIGHTS_FILE]
    for name, model in graphs(job).items():
        job.report(f"check {name}")
        save(model, job.directory / f"{name}.onnx", weightless)
        names.append(f"{name}.onnx")
    return tuple(names)
