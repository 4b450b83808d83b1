"""Shapes of a plan's tensors: which profile takes them, what comes out; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from build_engine.bindings import Range, Signature, is_pool

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Profile = Mapping[str, tuple[Shape, Shape]]
"""Least and largest shape of every input."""


def choose_profile(shapes: Shapes, profiles: Sequence[Profile]) -> int | None:
    """The first profile that takes all these shapes, smallest steps first; None if none does."""
    for number, profile in enumerate(profiles):
        if all(_inside(shape, *profile[name]) for name, shape in shapes.items()):
            return number
    return None


def _inside(shape: Shape, least: Shape, most: Shape) -> bool:
    return all(a <= size <= b for size, a, b in zip(shape, least, most, strict=True))


def output_shapes(signature: Signature, shapes: Shapes) -> dict[str, Shape]:
    """The shape of every output, its dynamic sizes taken from the inputs' shapes."""
    sizes: dict[str, int] = {}
    for binding in signature.inputs:
        for name, size in zip(binding.shape, shapes[binding.name], strict=True):
            if isinstance(name, str):
                sizes[name] = size
    return {
        binding.name: tuple(sizes[n] if isinstance(n, str) else n for n in binding.shape)
        for binding in signature.outputs
    }


def lacking(
    signature: Signature, sizes: Mapping[str, int], profiles: Sequence[Profile]
) -> str | None:
    """The first input whose largest shape, pools aside, no profile takes; None if all are taken."""
    for binding in signature.inputs:
        if is_pool(binding.name):
            continue
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in binding.shape)
        if not any(_inside(shape, *profile[binding.name]) for profile in profiles):
            return f"{binding.name} {list(shape)}"
    return None


def of_ranges(signature: Signature, ranges: Mapping[str, Range]) -> dict[str, tuple[Shape, Shape]]:
    """A profile as the builder was asked for it."""

    def shape(sizes: Sequence[int | str], field: str) -> Shape:
        return tuple(getattr(ranges[n], field) if isinstance(n, str) else n for n in sizes)

    return {
        binding.name: (shape(binding.shape, "least"), shape(binding.shape, "most"))
        for binding in signature.inputs
    }
