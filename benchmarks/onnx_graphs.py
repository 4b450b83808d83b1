"""An ONNX engine's graphs as TensorRT-RTX gets them, for onnxruntime to prove."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx

from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.rtx_graph import rewrite
from triton_backend.device.onnx_executor import OnnxExecutor
from triton_backend.device.runner import DeviceRunner


def rtx_runner(directory: Path, contract: EngineContract, threads: int = 0) -> DeviceRunner:
    """Runs an ONNX engine as a TensorRT-RTX one: the rewritten graphs by that target's rules."""
    target = dataclasses.replace(contract, target=bindings.TENSORRT_RTX)
    graphs = {}
    for name, signature in bindings.signatures(target).items():
        model = onnx.load(directory / f"{name}.onnx", load_external_data=False)
        graphs[name] = rewrite(name, model, signature).SerializeToString()
    return DeviceRunner(target, OnnxExecutor(directory, target, threads, graphs))
