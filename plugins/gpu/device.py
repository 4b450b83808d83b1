"""What launch plans know of a GPU and of numbers; imports no torch and no triton."""

from dataclasses import dataclass

TARGETS = (80, 90, 100, 120)
"""Compute capabilities that every kernel is compiled for: Ampere, Hopper, both Blackwells."""

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

_SHARED_KIB = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}

CAPABILITIES = tuple(_SHARED_KIB)
"""Compute capabilities whose shared memory is known."""


@dataclass(frozen=True)
class Gpu:
    """A compute capability and, where the machine is known, its number of multiprocessors."""

    capability: int
    processors: int = 128

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one program may take; an unknown GPU counts as the smallest."""
        return _SHARED_KIB.get(self.capability, min(_SHARED_KIB.values())) * 1024

    @property
    def roomy(self) -> bool:
        """Whether a tile of 64 rows of the widest head has space beside its keys and values."""
        return self.shared_bytes > 200 * 1024


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is no less than either."""
    return max(least, 1 << (number - 1).bit_length())


def tiles_of(number: int, size: int) -> int:
    return -(-number // size)
