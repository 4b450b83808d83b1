"""Runs AOTInductor packages over one weight file on one device. On a GPU not yet run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.device.checks import check_version, first_line
from triton_backend.device.executor import Tensors
from triton_backend.device.gpu import gpu_for
from triton_backend.runner import RunnerOptions


class CudaExecutor:
    """Owns the weights, on the device once, and the compiled functions.

    Raises:
        EngineError: the engine does not load here.
    """

    def __init__(self, directory: Path, contract: EngineContract, device: torch.device) -> None:
        self.device = device
        self._names = {
            name: [binding.name for binding in signature.outputs]
            for name, signature in bindings.signatures(contract).items()
        }
        try:
            self._weights = load_file(str(directory / "weights.safetensors"), device=str(device))
        except torch.OutOfMemoryError as error:
            raise EngineError(_no_room(directory, device)) from error
        self._packages = {name: self._open(directory / f"{name}.pt2") for name in self._names}

    def _open(self, path: Path) -> Any:
        index = -1 if self.device.index is None else self.device.index
        try:
            package = torch._inductor.aoti_load_package(
                str(path), run_single_threaded=True, device_index=index
            )
        except RuntimeError as error:
            raise EngineError(
                f"{path} does not load here ({first_line(error)}); rebuild the engine on this "
                "machine."
            ) from error
        wanted = {name: self._weights[name] for name in package.get_constant_fqns()}
        package.load_constants(wanted, check_full_update=True, user_managed=True)
        return package

    @property
    def embedding(self) -> Tensor:
        """The token table [V, H], tied with the head."""
        return self._weights["embed_tokens.weight"]

    def run(self, function: str, inputs: Mapping[str, Tensor]) -> Tensors:
        """Outputs by binding name; pools among the inputs are updated in place."""
        found = self._packages[function].loader.boxed_run(list(inputs.values()))
        return dict(zip(self._names[function], found, strict=True))


def _no_room(directory: Path, device: torch.device) -> str:
    free, total = torch.cuda.mem_get_info(device)
    size = (directory / "weights.safetensors").stat().st_size
    return (
        f"the weights of engine {directory} need {size >> 20} MiB of GPU memory, {free >> 20} of "
        f"{total >> 20} MiB are free; serve it on a larger GPU."
    )


def open_executor(
    directory: Path,
    contract: EngineContract,
    options: RunnerOptions,  # noqa: ARG001 - a package has no threads and no kernels to compile
) -> CudaExecutor:
    """The executor of a `cuda` engine on this machine's GPU.

    Raises:
        EngineError: another torch built it, or there is no GPU that it runs on.
    """
    check_version(contract, "torch", "torch", torch.__version__)
    return CudaExecutor(directory, contract, gpu_for(contract))
