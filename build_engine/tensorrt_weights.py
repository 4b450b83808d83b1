"""Where a TensorRT engine's weights lie, and their bytes; standard library and NumPy only.

A plan holds none. They are in the engine's directory or, weightless, still in the checkpoint.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from build_engine.contract import EngineContract, file_sha256
from build_engine.errors import EngineError

WEIGHTS_FILE = "weights.safetensors"
ELSEWHERE_FILE = "weights.json"

_DTYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2)}


@dataclass(frozen=True)
class Stored:
    """One tensor's bytes, mapped from disk; `file` keeps the mapping alive."""

    dtype: str
    count: int
    address: int
    file: NDArray[np.uint8]


def point_elsewhere(directory: Path, checkpoint: Path, files: Sequence[str]) -> None:
    """Write where a weightless engine finds its weights."""
    found = {"directory": str(checkpoint.resolve()), "files": sorted(files)}
    (directory / ELSEWHERE_FILE).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def weight_files(directory: Path, contract: EngineContract) -> list[Path]:
    """The safetensors files that hold an engine's weights.

    Raises:
        EngineError: the checkpoint of a weightless engine is gone or is another one.
    """
    pointer = directory / ELSEWHERE_FILE
    if not pointer.is_file():
        return [directory / WEIGHTS_FILE]
    where = json.loads(pointer.read_text(encoding="utf-8"))
    files = [Path(where["directory"]) / name for name in where["files"]]
    for path in files:
        if not path.is_file():
            raise EngineError(
                f"engine {directory}: its weights stayed in the checkpoint, but {path} is gone; "
                "put it back, or rebuild the engine."
            )
        if _hash(path) != contract.checkpoint["files"][path.name]:
            raise EngineError(
                f"engine {directory}: {path} is not the file it was built from; rebuild the engine."
            )
    return files


@functools.cache
def _hash(path: Path) -> str:
    """Once a process, as an engine has several plans and gigabytes of weights."""
    return file_sha256(path)


def read_stored(files: Sequence[Path]) -> dict[str, Stored]:
    """Every tensor of these files by name.

    Raises:
        EngineError: a file cannot be read.
    """
    try:
        return {name: one for path in files for name, one in _tensors(path)}
    except (OSError, ValueError) as error:
        raise EngineError(f"the engine's weights cannot be read: {error}.") from error


def _tensors(path: Path) -> Iterator[tuple[str, Stored]]:
    file = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(file[:8].tobytes(), "little")
    header = json.loads(file[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            continue
        dtype, width = _DTYPES[entry["dtype"]]
        first, last = entry["data_offsets"]
        start = 8 + size + first
        if 8 + size + last > len(file):
            raise ValueError(f"{path} ends before its tensor {name}")
        yield name, Stored(dtype, (last - first) // width, file.ctypes.data + start, file)
