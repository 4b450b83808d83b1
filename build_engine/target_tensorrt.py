"""Builds TensorRT plans of step and heads on the GPU they are for, from the ONNX graphs, with the
ops as plugins; the weights stay beside them."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import os
import tempfile
from pathlib import Path

import onnx

import plugins.gpu
import plugins.tensorrt
from build_engine import bindings, target_onnx, tensorrt_api
from build_engine.errors import EngineError
from build_engine.job import Job, Options
from build_engine.onnx_model import save
from build_engine.tensorrt_api import Api
from build_engine.tensorrt_builder import Order, build_plan
from build_engine.tensorrt_cache import read_timings, timing_file, write_timings
from build_engine.tensorrt_device import Device, find_device
from build_engine.tensorrt_graph import load_of, rewrite, weight_names
from build_engine.tensorrt_weights import ELSEWHERE_FILE, WEIGHTS_FILE, point_elsewhere
from plugins.gpu.device import CAPABILITIES
from plugins.tensorrt.registration import Registry, register


def identity(options: Options) -> dict[str, object]:
    """A plan loads in the release that built it, on the kind of GPU it was built on.

    Raises:
        EngineError: TensorRT or a GPU is missing.
    """
    graph = target_onnx.identity(dataclasses.replace(options, compute_capabilities=()))
    api, device = tensorrt_api.load(), _device()
    return {
        **graph,
        "tensorrt": api.version,
        "triton": importlib.metadata.version("triton"),
        "compute_capability": device.capability,
        "kernels": _kernels_sha256(),
    }


def problems(dtype: str, options: Options) -> list[str]:  # noqa: ARG001
    """What is missing on this machine, or asked of another one."""
    found = []
    try:
        tensorrt_api.load()
    except EngineError as error:
        found.append(str(error).rstrip("."))
    device = find_device()
    if device is None:
        found.append("--target tensorrt builds on the GPU it is for, and this machine has none")
        return found
    if device.gpu.capability not in CAPABILITIES:
        known = ", ".join(f"{number / 10:.1f}" for number in CAPABILITIES)
        found.append(
            f"{device.name} has compute capability {device.capability}, the kernels are for {known}"
        )
    for asked in options.compute_capabilities:
        if asked != device.capability:
            found.append(
                f"--compute-capability {asked} is not that of {device.name}, {device.capability}, "
                "and TensorRT builds for the GPU it runs on; build on the other machine"
            )
    return found


def build(job: Job) -> tuple[str, ...]:
    """Write a plan and a report of each function, and the weights unless they stay in place."""
    api, device = tensorrt_api.load(), _device()
    register(Registry(api.trt, api.plugin, device.gpu))
    with tempfile.TemporaryDirectory(dir=job.directory, prefix="onnx-") as work:
        names = _build_all(job, Path(work), api, device)
        if job.options.weightless:
            return (*names, ELSEWHERE_FILE)
        os.replace(Path(work) / WEIGHTS_FILE, job.directory / WEIGHTS_FILE)
    return (*names, WEIGHTS_FILE)


def _build_all(job: Job, work: Path, api: Api, device: Device) -> list[str]:
    geometry, names, timings = job.config.geometry, [], timing_file(api.version, device)
    target, load = bindings.TENSORRT, load_of(job.limits, job.page_size)
    signatures = bindings.target_signatures(target, geometry, job.page_size, job.dtype)
    profiles = bindings.profiles(target, geometry, job.limits, job.page_size)
    graphs = target_onnx.graphs(dataclasses.replace(job, directory=work))
    if job.options.weightless:
        _link_weights(job, work, graphs[bindings.STEP])
    for name in bindings.FUNCTIONS:
        model, path = rewrite(graphs[name], load, device.gpu), work / f"{name}.onnx"
        save(model, path, job.options.weightless)
        weights = weight_names(model)
        order = Order(path, signatures[name], profiles, weights, job.dtype, job.report)
        plan = build_plan(api, order, read_timings(timings))
        write_timings(timings, plan.timings)
        file = job.directory / bindings.plan_file(target, name)
        layers = file.with_suffix(".layers.json")
        file.write_bytes(plan.content)
        layers.write_text(plan.layers, encoding="utf-8")
        names += [file.name, layers.name]
    return names


def _link_weights(job: Job, work: Path, step: onnx.ModelProto) -> None:
    """Put the checkpoint's files where the graphs look for them, without a copy."""
    external = [one for one in step.graph.initializer if one.name in set(weight_names(step))]
    files = {
        entry.value for one in external for entry in one.external_data if entry.key == "location"
    }
    for name in files:
        (work / name).symlink_to((job.checkpoint.directory / name).resolve())
    point_elsewhere(job.directory, job.checkpoint.directory, sorted(files))


def _device() -> Device:
    device = find_device()
    if device is None:
        raise EngineError(
            "--target tensorrt builds on the GPU it is for, and this machine has none."
        )
    return device


def _kernels_sha256() -> str:
    """Digest of the sources that plans get their kernels from."""
    digest = hashlib.sha256()
    for package in (plugins.gpu, plugins.tensorrt):
        for path in sorted(Path(str(package.__file__)).parent.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
