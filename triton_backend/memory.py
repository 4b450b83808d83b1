"""How much memory this process may still take, by Linux's own accounts."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP_MAX = Path("/sys/fs/cgroup/memory.max")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP_MAX) -> int | None:
    """Bytes to be had without swapping, within the container's limit; None where nobody says."""
    found = [size for size in (_mem_available(meminfo), _limit(cgroup)) if size is not None]
    return min(found, default=None)


def _mem_available(path: Path) -> int | None:
    if not path.exists():
        return None
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _limit(path: Path) -> int | None:
    text = path.read_text(encoding="ascii").strip() if path.exists() else "max"
    return None if text == "max" else int(text)
