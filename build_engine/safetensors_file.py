"""Writes a safetensors file tensor by tensor, so that only one is in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
}
_ALIGNMENT = 64
"""Bytes; of the first tensor, whose start no padding may move once the header is written."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a file before its values are known."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize * int(torch.Size(self.shape).numel())


def _header(stored: Sequence[Stored]) -> bytes:
    entries, offset = {}, 0
    for one in stored:
        entries[one.name] = {
            "dtype": _NAMES[one.dtype],
            "shape": list(one.shape),
            "data_offsets": [offset, offset + one.size],
        }
        offset += one.size
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-(len(text) + 8) % _ALIGNMENT)


def write_safetensors(path: Path, stored: Sequence[Stored], values: Iterable[Tensor]) -> None:
    """Write the tensors in the order given; each of `values` is as its `stored` says.

    Wider dtypes go first, or those after them are out of alignment.

    Raises:
        OSError: it cannot be written.
    """
    header = _header(stored)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for one, value in zip(stored, values, strict=True):
            assert (value.dtype, tuple(value.shape)) == (one.dtype, one.shape), one
            file.write(value.contiguous().flatten().view(torch.uint8).numpy().data)
