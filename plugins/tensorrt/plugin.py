"""What a plugin is: one value that TensorRT's registration, the ONNX graph and the tests all read.

A plugin is one kernel, without memory of its own: its arguments are the inputs, the scalars as
int32 and the outputs, in this order. An output that is an input updated in place comes as both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plugins.gpu.device import Gpu
from plugins.gpu.launch_plan import Plan
from plugins.tensorrt.sizes import Size

ELEMENT = "element"
"""The dtype of an engine's activations, and the attribute that gives it where no input has it."""

ELEMENTS = {1: "float32", 10: "float16", 16: "bfloat16"}
"""ONNX's numbers of the dtypes that may be, which attribute `element` holds."""

Attributes = Mapping[str, int | float]


@dataclass(frozen=True)
class Tensor:
    """An input or output; the words among an input's sizes get their meaning from it."""

    name: str
    dtype: str
    sizes: tuple[Size, ...] | None  # None: an input whose shape does not matter
    alias: str = ""  # the input that this output is, updated in place


@dataclass(frozen=True)
class Setting:
    """What plans follow from: the fixed sizes, and what the dynamic ones usually are."""

    dtype: str
    gpu: Gpu
    attributes: Attributes
    sizes: Mapping[str, int]

    def size(self, name: str) -> int:
        """A word's value, an attribute's included."""
        return int(self.attributes[name] if name in self.attributes else self.sizes[name])


@dataclass(frozen=True)
class Plugin:
    """One kernel as a layer of a network.

    `plans` are its tactics, best guess first: the outputs' shapes must not depend on which is
    taken. The grid may depend on a plan and on dynamic sizes.
    """

    name: str
    kernel: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    plans: Callable[[Setting], Sequence[Plan]]
    grid: Callable[[Any], tuple[Size, ...]]
    scalars: Mapping[str, Size] = field(default_factory=dict)
    attributes: Mapping[str, type] = field(default_factory=dict)

    def words(self, shapes: Sequence[Sequence[Any]], attributes: Attributes) -> dict[str, Any]:
        """Every word's meaning, from the inputs' shapes and the attributes."""
        found: dict[str, Any] = dict(attributes)
        for tensor, shape in zip(self.inputs, shapes, strict=True):
            for size, given in zip(tensor.sizes or (), shape, strict=False):
                if isinstance(size, str):
                    found.setdefault(size, given)
        return found

    def element(self, dtypes: Sequence[str], attributes: Attributes) -> str:
        """The dtype of activations, from the inputs' dtypes or the attribute; float32 if neither
        has a say."""
        given = zip(self.inputs, dtypes, strict=True)
        found = [dtype for tensor, dtype in given if tensor.dtype == ELEMENT]
        return found[0] if found else ELEMENTS[int(attributes.get(ELEMENT, 1))]

    def output_dtypes(self, dtypes: Sequence[str], attributes: Attributes) -> list[str]:
        element = self.element(dtypes, attributes)
        return [element if one.dtype == ELEMENT else one.dtype for one in self.outputs]
