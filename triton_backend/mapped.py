"""The two large things of an engine process: its weights, mapped, and the memory of its KV pools.

NumPy views of page-aligned memory; bfloat16, which NumPy does not have, is seen as uint16.
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from build_engine.errors import EngineError

Values = NDArray[Any]

# By safetensors' names.
_DTYPES = {"F32": np.float32, "BF16": np.uint16, "I32": np.int32, "I64": np.int64}


def map_weights(path: Path) -> dict[str, Values]:
    """Read-only views of all tensors of a safetensors file, by name; nothing is copied.

    Raises:
        EngineError: it is not such a file.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        start = 8 + int.from_bytes(mapped[:8], "little")
        header = json.loads(mapped[8:start])
        header.pop("__metadata__", None)
        return {name: _view(mapped, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} holds no weights ({error}); rebuild the engine.") from error


def _view(mapped: mmap.mmap, start: int, entry: dict[str, Any]) -> Values:
    shape, offset = entry["shape"], start + entry["data_offsets"][0]
    return np.frombuffer(mapped, _DTYPES[entry["dtype"]], math.prod(shape), offset).reshape(shape)


def zeroed(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
    """Zeroed memory of its own, every page of it there from now on.

    Raises:
        MemoryError: it is not to be had.
    """
    size = math.prod(shape) * dtype.itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags), dtype).reshape(shape)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{size} bytes cannot be had") from error
