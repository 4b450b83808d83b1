"""Runs the plans of a TensorRT or TensorRT-RTX engine. Not yet run on hardware."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from build_engine import bindings
from build_engine.contract import EngineContract
from triton_backend.device import tensorrt_library
from triton_backend.device.executor import Tensors
from triton_backend.device.gpu import gpu_for, new_stream, running_on
from triton_backend.device.graphs import Graphs, call_key
from triton_backend.device.tensorrt_library import Library
from triton_backend.device.tensorrt_plan import Memory, Plan
from triton_backend.runner import RunnerOptions

_MOST_GRAPHS = 64


class TensorRTExecutor:
    """Owns the three plans, one block of memory for their contexts, and captured CUDA graphs."""

    embedding = None

    def __init__(
        self,
        directory: Path,
        contract: EngineContract,
        library: Library,
        device: torch.device,
        options: RunnerOptions,
    ) -> None:
        self.device = device
        self._library = library
        self._graphs = Graphs(_MOST_GRAPHS)
        self._captures = library.captures and options.cuda_graphs
        self._runtime = tensorrt_library.make_runtime(library)
        sizes = bindings.target_sizes(
            contract.target, contract.geometry, contract.limits, contract.page_size
        )
        engines = {name: self._engine(directory, contract, name) for name in bindings.FUNCTIONS}
        signatures = bindings.signatures(contract)
        self._plans = {
            name: Plan(library, name, engine, signatures[name], sizes)
            for name, engine in engines.items()
        }
        self._open(engines, _cache_files(contract, options.kernel_cache), options.cuda_graphs)

    def _engine(self, directory: Path, contract: EngineContract, name: str) -> Any:
        path = directory / bindings.plan_file(contract.target, name)
        engine = tensorrt_library.deserialise(self._library, self._runtime, path)
        if contract.target == bindings.TENSORRT:
            # Its plans hold no weights; only the builder knows where they lie.
            refit = importlib.import_module("build_engine.tensorrt_refit")
            refit.refit_engine(engine, directory, contract)
        return engine

    def _open(
        self, engines: Mapping[str, Any], caches: Mapping[str, Path], cuda_graphs: bool
    ) -> None:
        size = max(plan.workspace_bytes for plan in self._plans.values())
        own = size if self._library.captures else 0
        memory = Memory(torch.empty(max(own, 1), dtype=torch.uint8, device=self.device))
        with running_on(new_stream(self.device)):
            for name, plan in self._plans.items():
                cache = caches.get(name)
                config = tensorrt_library.make_runtime_config(
                    self._library, engines[name], cache, cuda_graphs
                )
                plan.open(memory, config)
                if config is not None and cache is not None:
                    weakref.finalize(self, tensorrt_library.save_kernels, config, cache)

    def run(self, function: str, inputs: Mapping[str, Tensor]) -> Tensors:
        """Outputs by binding name; calls of the same shapes are replayed from the third on."""
        plan = self._plans[function]
        if not self._captures:
            return plan.plain(inputs)
        key = call_key(function, inputs)
        return self._graphs.run(key, inputs, plan.plain, plan.bind)


def _cache_files(contract: EngineContract, directory: Path | None) -> dict[str, Path]:
    """Where each plan's kernels are kept, by the plan's own hash; nowhere without a directory."""
    if directory is None:
        return {}
    plans = {name: bindings.plan_file(contract.target, name) for name in bindings.FUNCTIONS}
    return {
        name: directory / f"{name}-{contract.files[plan][:16]}.kernels"
        for name, plan in plans.items()
    }


def open_executor(
    directory: Path, contract: EngineContract, options: RunnerOptions
) -> TensorRTExecutor:
    """The executor of a `tensorrt` or `tensorrt-rtx` engine.

    Raises:
        EngineError: the library, its release or the GPU is not what the engine needs.
    """
    library = tensorrt_library.load_library(contract)
    device = gpu_for(contract)
    return TensorRTExecutor(directory, contract, library, device, options)
