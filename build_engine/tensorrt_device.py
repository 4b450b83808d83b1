"""Asks NVIDIA's driver which GPU this machine has; needs neither torch nor CUDA's toolkit."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from plugins.gpu.device import Gpu

_DRIVER = "libcuda.so.1"
_PROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute
_NAME_BYTES = 128


@dataclass(frozen=True)
class Device:
    """The first GPU that this process sees."""

    name: str
    major: int
    minor: int
    processors: int

    @property
    def capability(self) -> str:
        """As command lines have it: 9.0."""
        return f"{self.major}.{self.minor}"

    @property
    def gpu(self) -> Gpu:
        return Gpu(10 * self.major + self.minor, self.processors)


def find_device() -> Device | None:
    """The GPU, or none if there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), 0):
        return None
    driver.cuDeviceGetName(name, _NAME_BYTES, handle)
    found = []
    for attribute in (_MAJOR, _MINOR, _PROCESSORS):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        found.append(value.value)
    return Device(name.value.decode(), *found)
