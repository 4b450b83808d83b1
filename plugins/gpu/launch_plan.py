"""What every launch plan has; imports no torch and no triton."""

from typing import Protocol


class Plan(Protocol):
    """A kernel's last argument: frozen, hashable, everything that is fixed when it is compiled."""

    @property
    def warps(self) -> int: ...
    @property
    def stages(self) -> int: ...
