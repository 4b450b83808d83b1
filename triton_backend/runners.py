"""Which runner serves which engine target; the only place that names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.runner import Runner, RunnerOptions

# By name, so that a server imports the libraries of its own target and of no other.
EXECUTORS = {
    "cuda": "triton_backend.device.cuda_executor",
    "onnx": "triton_backend.device.onnx_executor",
    "tensorrt": "triton_backend.device.tensorrt_executor",
    "tensorrt-rtx": "triton_backend.device.tensorrt_executor",
}
_OURS = ("build_engine", "plugins", "triton_backend")

TARGETS = ("cpu", *EXECUTORS)


def open_runner(directory: Path, contract: EngineContract, options: RunnerOptions) -> Runner:
    """The runner of the engine's target, its weights loaded.

    Raises:
        EngineError: no runner for this target, or the engine does not load.
    """
    if contract.target not in TARGETS:
        known = ", ".join(sorted(TARGETS))
        raise EngineError(
            f"engine {directory} is built for target {contract.target!r}, this server runs "
            f"{known}; build it with `--target` one of those."
        )
    opened = _open_cpu if contract.target == "cpu" else _open_device
    return opened(directory, contract, options)


def pools_in_host_memory(contract: EngineContract) -> bool:
    """Whether the KV pools take this machine's memory, not a GPU's."""
    return contract.target in ("cpu", "onnx")


def _open_cpu(directory: Path, contract: EngineContract, options: RunnerOptions) -> Runner:
    opened: Callable[..., Runner] = importlib.import_module("triton_backend.runner_cpu").CpuRunner
    return opened(directory, contract, options.threads)


def _open_device(directory: Path, contract: EngineContract, options: RunnerOptions) -> Runner:
    try:
        executors = importlib.import_module(EXECUTORS[contract.target])
        runner: Callable[..., Runner] = importlib.import_module(
            "triton_backend.device.runner"
        ).DeviceRunner
    except ImportError as error:
        name = error.name or "its library"
        if name.split(".")[0] in _OURS:
            raise
        raise EngineError(
            f"serving a `--target {contract.target}` engine needs {name}, which does not import "
            f"here ({error}); install it, or serve a `--target cpu` engine."
        ) from error
    return runner(contract, executors.open_executor(directory, contract, options))
