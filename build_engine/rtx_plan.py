"""Reads a TensorRT-RTX plan back: its header anywhere, all of it where there is a GPU."""

from __future__ import annotations

import struct
from pathlib import Path

from build_engine.bindings import Signature
from build_engine.errors import EngineError

_MAGIC = b"vtrt"
_HEADER = struct.Struct("<4s12xQ4B")  # magic, size of the file, version of the library


def check_plan(path: Path, signature: Signature, version: str) -> None:
    """Whether a file is one whole plan of this library's version that names every binding.

    The runtime itself asks for a GPU before it reads anything, so this is what a CPU can see.

    Raises:
        EngineError: it is not.
    """
    plan = path.read_bytes()
    if len(plan) < _HEADER.size or not plan.startswith(_MAGIC):
        raise EngineError(f"{path} is not a TensorRT-RTX plan.")
    _, size, *numbers = _HEADER.unpack_from(plan)
    if size != len(plan):
        raise EngineError(f"{path} is {len(plan)} bytes long, its header says {size}; rebuild it.")
    found = ".".join(map(str, numbers))
    if found != version:
        raise EngineError(
            f"{path} was built by TensorRT-RTX {found}, version {version} is installed; rebuild it."
        )
    wanted = [binding.name for binding in (*signature.inputs, *signature.outputs)]
    absent = [name for name in wanted if name.encode() not in plan]
    if absent:
        raise EngineError(f"{path} has no tensors named {', '.join(absent)}; rebuild it.")
