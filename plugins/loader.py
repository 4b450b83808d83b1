"""Loads the CPU kernels into torch as `torch.ops.dg.*`, for building and testing; knows no op."""

import threading
from pathlib import Path

import torch

from plugins import definitions, fakes, library

_loaded: list[Path] = []
_load_lock = threading.Lock()


def load(cache: Path | None = None) -> None:
    """Makes the ops available, building them first if this machine has not; safe to call again."""
    with _load_lock:
        if _loaded:
            return
        built = library.build(cache)
        definitions.withdraw()
        torch.ops.load_library(str(built))
        fakes.register()
        _loaded.append(built)
