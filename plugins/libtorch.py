"""Finds torch's release and C++ library on disk; imports no torch, whose Python takes 90 MiB."""

import ctypes
import importlib.util
import runpy
from pathlib import Path

from plugins.errors import PluginError


def directory() -> Path:
    """Where torch is installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise PluginError("torch is not installed for this Python: run `make setup`.")
    return Path(spec.submodule_search_locations[0])


def version() -> str:
    """What `torch.__version__` says."""
    found: str = runpy.run_path(str(directory() / "version.py"))["__version__"]
    return found


def load() -> None:
    """Loads what the kernels and compiled packages are linked against; they then find it loaded."""
    library = directory() / "lib" / "libtorch_cpu.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise PluginError(f"torch's C++ library does not load: {error}.") from error
