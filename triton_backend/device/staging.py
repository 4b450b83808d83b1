"""Moves arrays between host and device: one copy a function in, one wait a step out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triton_backend.device.executor import Tensors

ALIGNMENT = 256
"""Bytes that every address handed to TensorRT is a multiple of."""

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
}


class Staging:
    """Named host arrays as device tensors, through one buffer on either side.

    The same sizes give the same addresses. What `put` returns holds until the next `put`, which
    must not be called before the device is done with the last one's copy.
    """

    def __init__(self, device: torch.device) -> None:
        self._pinned = device.type == "cuda"
        self._host = torch.empty(0, dtype=torch.uint8)
        self._device = torch.empty(0, dtype=torch.uint8, device=device)

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
        """The arrays on the device."""
        sizes = [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays.values()]
        total = sum(sizes)
        self._hold(total)
        host, start, places = self._host.numpy(), 0, {}
        for (name, array), size in zip(arrays.items(), sizes, strict=True):
            end = start + array.nbytes
            host[start:end] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            dtype = DTYPES[str(array.dtype)]
            places[name] = self._device[start:end].view(dtype).view(array.shape)
            start += size
        self._device[:total].copy_(self._host[:total], non_blocking=True)
        return places

    def _hold(self, size: int) -> None:
        if size > len(self._host):
            size = 1 << (size - 1).bit_length()
            self._host = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
            self._device = torch.empty(size, dtype=torch.uint8, device=self._device.device)


class Gathering:
    """The outputs of a head's calls, row after row; all go to the host but those named `kept`."""

    def __init__(self, rows: int, device: torch.device, kept: frozenset[str]) -> None:
        self._rows, self._device, self._kept = rows, device, kept
        self._found: Tensors = {}
        self._filled = 0

    def add(self, outputs: Mapping[str, Tensor]) -> None:
        """The next call's outputs; rows beyond those wanted are left out."""
        first = self._filled
        count = min(self._rows - first, len(next(iter(outputs.values()))))
        for name, values in outputs.items():
            if name not in self._found:
                self._found[name] = self._empty(name, values)
            target = self._found[name][first : first + count]
            target.copy_(values[:count], non_blocking=True)
        self._filled += count

    def _empty(self, name: str, values: Tensor) -> Tensor:
        shape = (self._rows, *values.shape[1:])
        if name in self._kept or self._device.type != "cuda":
            return torch.empty(shape, dtype=values.dtype, device=self._device)
        return torch.empty(shape, dtype=values.dtype, pin_memory=True)

    def arrays(self) -> dict[str, Any]:
        """Everything by name: NumPy's own memory, and tensors of the kept. Call after the wait."""
        assert self._filled == self._rows
        return {
            name: values if name in self._kept else values.numpy().copy()
            for name, values in self._found.items()
        }


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its address is not a multiple of ALIGNMENT."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
