"""How much memory this process may still take, by Linux's own accounts, and what it gives back."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

_STATM = Path("/proc/self/statm")
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


class Growth:
    """Keeps what malloc holds for later, of memory that was freed, within about `most` bytes.

    It holds more of it the more sizes come in turn. To give it back costs what taking it again
    does, so it is done only when this process has grown by so much since the last time.
    """

    def __init__(self, most: int) -> None:
        self._most, self._before = most, anonymous_bytes()
        self._trim = ctypes.CDLL(None).malloc_trim

    def bound(self) -> None:
        """Call between two executions."""
        if anonymous_bytes() - self._before > self._most:
            self._trim(0)
            self._before = anonymous_bytes()


def anonymous_bytes() -> int:
    """Resident memory of this process that is no file's."""
    resident, shared = map(int, _STATM.read_text(encoding="ascii").split()[1:3])
    return (resident - shared) * mmap.PAGESIZE
