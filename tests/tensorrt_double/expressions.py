"""Shape expressions of the double: functions of the sizes of one execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sizes = Mapping[str, int]
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "sum": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "prod": lambda a, b: a * b,
    "floor": lambda a, b: a // b,
    "ceil": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


class SymIntExpr:
    """An integer that is known once an execution's sizes are; fake where there are none yet."""

    def __init__(self, value: Any = None) -> None:
        if isinstance(value, bool) or not isinstance(value, int | str | SymIntExpr | None):
            raise TypeError(f"{value!r} is neither an int nor a symbolic integer")
        self.of: Callable[[Sizes], int] | None = None
        self.constant = value if isinstance(value, int) else None
        if isinstance(value, SymIntExpr):
            self.of, self.constant = value.of, value.constant
        elif isinstance(value, int):
            self.of = lambda _: value
        elif isinstance(value, str):
            self.of = lambda sizes: sizes[value]

    @property
    def is_fake(self) -> bool:
        return self.of is None

    def _op(self, name: str, other: Any) -> Any:
        if not isinstance(other, int | SymIntExpr):
            return NotImplemented
        right, made = SymIntExpr(other), type(self)()
        if self.of is not None and right.of is not None:
            first, second = self.of, right.of
            made.of = lambda sizes: _OPERATORS[name](first(sizes), second(sizes))
        return made

    # As in TensorRT, the symbolic side has to stand on the left.
    def __add__(self, other: Any) -> Any:
        return self._op("sum", other)

    def __sub__(self, other: Any) -> Any:
        return self._op("sub", other)

    def __mul__(self, other: Any) -> Any:
        return self._op("prod", other)

    def __floordiv__(self, other: Any) -> Any:
        return self._op("floor", other)

    def __eq__(self, other: object) -> Any:
        raise AssertionError("comparing shape expressions gives an expression, not an answer")

    __hash__ = None  # type: ignore[assignment]


class SymInt32(SymIntExpr):
    """The only kind that a kernel's scalars may have."""


class ShapeExpr(SymInt32):
    """One size of a tensor."""


def _binary(name: str) -> Callable[[Any, Any], ShapeExpr]:
    def apply(first: Any, second: Any) -> ShapeExpr:
        if isinstance(first, int) and isinstance(second, int):
            raise ValueError("Both arguments cannot be 'int's")
        return ShapeExpr(first)._op(name, second)

    return apply


cdiv, least, most = _binary("ceil"), _binary("min"), _binary("max")


class SymIntExprs:
    """A kernel's extra arguments; bare numbers become SymIntExpr, which is refused later."""

    def __init__(self, length: int) -> None:
        self.items: list[Any] = [None] * length

    def __setitem__(self, index: int, value: Any) -> None:
        self.items[index] = value if isinstance(value, SymIntExpr) else SymIntExpr(value)

    def __len__(self) -> int:
        return len(self.items)


class KernelLaunchParams:
    """How a kernel is launched."""

    NAMES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")

    def __init__(self) -> None:
        for name in self.NAMES:
            setattr(self, name, 0 if name == "shared_mem" else 1)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.NAMES:
            raise AttributeError(f"KernelLaunchParams object has no attribute '{name}'")
        self.__dict__[name] = SymInt32(value)

    def values(self, sizes: Sizes) -> dict[str, int]:
        return {name: getattr(self, name).of(sizes) for name in self.NAMES}
