"""Sessions over onnxruntime by the server's own device runner; for proofs, right and not fast."""

from __future__ import annotations

from pathlib import Path

from benchmarks.onnx_graphs import rtx_runner
from benchmarks.session import Session
from triton_backend.device.onnx_executor import OnnxExecutor
from triton_backend.device.runner import DeviceRunner


class OnnxSession(Session):
    """A session over an ONNX engine's own graphs."""

    def _runner(self, engine: Path, threads: int) -> DeviceRunner:  # type: ignore[override]
        return DeviceRunner(self.contract, OnnxExecutor(engine, self.contract, threads))


class PlainSession(Session):
    """A session over the same engine by the graphs that TensorRT-RTX gets, and by its rules."""

    def _runner(self, engine: Path, threads: int) -> DeviceRunner:  # type: ignore[override]
        return rtx_runner(engine, self.contract, threads)
