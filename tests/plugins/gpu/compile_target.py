"""Lets triton take a kernel apart for a GPU that is not here, as torch's exporter asks it to."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class AbsentGpu(DriverBase):
    """Says what the GPU would be, and can launch nothing."""

    def __init__(self, capability: int) -> None:
        super().__init__()
        self._capability = capability

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_benchmarker(self) -> object:
        raise NotImplementedError


@contextmanager
def absent_gpu(capability: int) -> Iterator[None]:
    """Within it, triton compiles for that compute capability."""
    config = triton.runtime.driver
    before = config._active
    config.set_active(AbsentGpu(capability))
    try:
        yield
    finally:
        config._active = before
