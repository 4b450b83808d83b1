"""Keeps TensorRT's timings between builds; a cache that cannot be kept is no error."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from build_engine.tensorrt_device import Device


def cache_directory() -> Path | None:
    """`.cache/tensorrt` beside the sources, else the user's cache, else none."""
    beside = Path(__file__).resolve().parent.parent / ".cache" / "tensorrt"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for directory in (beside, user / "diffusiongemma-triton" / "tensorrt"):
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            if os.access(directory, os.W_OK | os.X_OK):
                return directory
    return None


def timing_file(version: str, device: Device) -> Path | None:
    """Where the timings of a release of TensorRT on a kind of GPU are kept."""
    directory = cache_directory()
    gpu = re.sub(r"\W+", "-", f"{device.name} {device.capability}")
    return directory / f"timing-{version}-{gpu}.cache" if directory else None


def read_timings(path: Path | None) -> bytes:
    """What was kept, or nothing."""
    with contextlib.suppress(OSError):
        return path.read_bytes() if path else b""
    return b""


def write_timings(path: Path | None, timings: bytes) -> None:
    """Replace what was kept, whole or not at all."""
    if path is None or not timings:
        return
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(timings)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
