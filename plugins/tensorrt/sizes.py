"""Sizes of tensors and grids as values, worked out in numbers, in words or by TensorRT alike.

A word is a size that is known later: a dimension of an input, or an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PLUS, TIMES, TILES, PART, LEAST = "+", "*", "ceil/", "floor/", "min"


@dataclass(frozen=True)
class Expression:
    """Two sizes and what is done with them: one of the five operators above."""

    operator: str
    left: Size
    right: Size


Size = int | str | Expression
Symbolic = Callable[[str, Any, Any], Any]
"""Applies an operator where at least one side is not a number."""


def plus(left: Size, right: Size) -> Size:
    return Expression(PLUS, left, right)


def times(left: Size, right: Size) -> Size:
    return Expression(TIMES, left, right)


def tiles(left: Size, right: Size) -> Size:
    """How many of `right` it takes to cover `left`."""
    return Expression(TILES, left, right)


def part(left: Size, right: Size) -> Size:
    """`left` divided by `right`, which divides it."""
    return Expression(PART, left, right)


def least(left: Size, right: Size) -> Size:
    return Expression(LEAST, left, right)


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    PLUS: lambda left, right: left + right,
    TIMES: lambda left, right: left * right,
    TILES: lambda left, right: -(-left // right),
    PART: lambda left, right: left // right,
    LEAST: min,
}


def in_words(operator: str, left: Any, right: Any) -> str:
    """A size as text, for the names of an ONNX graph's dynamic sizes."""
    return f"({left} {operator} {right})"


def evaluate(size: Size, known: Mapping[str, Any], symbolic: Symbolic = in_words) -> Any:
    """The size in terms of the known words; a number wherever all that it needs are numbers."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return known[size]
    left = evaluate(size.left, known, symbolic)
    right = evaluate(size.right, known, symbolic)
    if isinstance(left, int) and isinstance(right, int):
        return _NUMBERS[size.operator](left, right)
    return symbolic(size.operator, left, right)
