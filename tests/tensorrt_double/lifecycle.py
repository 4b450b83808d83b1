"""What a build asks of each plugin, in its order: dtypes, shapes, tactics, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from tests.tensorrt_double.expressions import (
    KernelLaunchParams,
    ShapeExpr,
    SymInt32,
    SymIntExprs,
)
from tests.tensorrt_double.network import KINDS, INetworkDefinition, IOptimizationProfile
from tests.tensorrt_double.plugin import AutoTuneCombination, Definition, Shape, TensorDesc

THREADS = 1024
SHORT = {"FLOAT": "FP32", "HALF": "FP16", "BF16": "BF16", "INT32": "INT32", "INT64": "INT64"}


@dataclass(frozen=True)
class Launch:
    """One tactic of one plugin node, and its launch at one corner of a profile."""

    node: str
    plugin: str
    tactic: int
    parameters: dict[str, int]
    scalars: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]  # of inputs, then of outputs
    code: str | bytes


class Lives:
    """Goes through the plugins of a network once a profile."""

    def __init__(self, network: INetworkDefinition, profile: IOptimizationProfile) -> None:
        self.network, self.corners = network, _corners(network, profile)
        self.known: dict[str, TensorDesc] = {}
        graph = network.model.graph
        for value in (*graph.input, *graph.value_info):
            kind = value.type.tensor_type
            # Of what plugins are given; their own outputs' shapes are theirs to tell.
            if kind.elem_type in KINDS and "/" not in value.name:
                sizes = [size.dim_value or size.dim_param for size in kind.shape.dim]
                self.known[value.name] = TensorDesc(
                    [ShapeExpr(size) for size in sizes], KINDS[kind.elem_type]
                )
        for tensor in graph.initializer:
            sizes = [ShapeExpr(size) for size in tensor.dims]
            if tensor.data_type in KINDS:
                self.known[tensor.name] = TensorDesc(sizes, KINDS[tensor.data_type])

    def launches(self) -> Iterator[Launch]:
        for node in self.network.model.graph.node:
            if node.domain:
                yield from self._live(node, self.network.definitions[node.name])

    def _live(self, node: onnx.NodeProto, definition: Definition) -> Iterator[Launch]:
        given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        attributes = {name: kind(given[name]) for name, kind in definition.attributes.items()}
        inputs = [self.known[name] for name in node.input]
        aliases = _dtypes(definition, inputs, attributes)
        outputs = definition.describe(*inputs, **attributes)
        assert [one.source for one in outputs] == [
            None if index is None else inputs[index] for index in aliases
        ]
        self.known.update(zip(node.output, outputs, strict=True))
        for one in (*inputs, *outputs):
            one.shape = self._shape(one)
        values = list(attributes.values())
        for tactic in _tactics(definition.tune(*inputs, *values, outputs), [*inputs, *outputs]):
            found = definition.implement(*inputs, *values, outputs, tactic)
            for sizes in self.corners:
                yield _launch(node, tactic, found, [*inputs, *outputs], sizes)

    def _shape(self, tensor: TensorDesc) -> Shape:
        usual = self.corners[1]
        opt = [size.of(usual) for size in tensor.shape_expr]
        fixed = [size.constant for size in tensor.shape_expr]
        return Shape([-1 if size is None else size for size in fixed], opt)


def _corners(
    network: INetworkDefinition, profile: IOptimizationProfile
) -> tuple[dict[str, int], ...]:
    """Every dynamic size at its smallest, usual and largest; inputs that share one agree."""
    found: tuple[dict[str, int], ...] = ({}, {}, {})
    for value in network.model.graph.input:
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            for corner, shape in zip(found, profile.shapes[value.name], strict=True):
                if size.HasField("dim_value"):
                    assert shape[axis] == size.dim_value
                else:
                    assert corner.setdefault(size.dim_param, shape[axis]) == shape[axis]
    return found


def _dtypes(
    definition: Definition, inputs: Sequence[TensorDesc], attributes: Mapping[str, Any]
) -> list[int | None]:
    """Which input each output is, asked before there are any shapes."""
    fakes = [TensorDesc([ShapeExpr() for _ in one.shape_expr], one.dtype) for one in inputs]
    outputs = definition.describe(*fakes, **attributes)
    assert len(outputs) == definition.outputs
    # An expression made now would belong to the network described last, which may be gone.
    assert all(size.is_fake for one in outputs for size in one.shape_expr)
    return [
        None
        if one.source is None
        else next(index for index, fake in enumerate(fakes) if fake is one.source)
        for one in outputs
    ]


def _tactics(combinations: Sequence[AutoTuneCombination], tensors: Sequence[TensorDesc]) -> list:
    (combination,) = combinations
    assert combination.io_types == [SHORT[one.dtype.name] for one in tensors]
    assert combination.layouts == "LINEAR"
    return combination.tactics


def _launch(
    node: onnx.NodeProto, tactic: int, found: Any, tensors: list[TensorDesc], sizes: dict[str, int]
) -> Launch:
    entry, code, parameters, extra = found
    assert isinstance(entry, str) and entry in code
    assert isinstance(parameters, KernelLaunchParams) and isinstance(extra, SymIntExprs)
    assert all(type(one) is SymInt32 for one in extra.items), "Extra args must be SymInt32"
    values = parameters.values(sizes)
    threads = values["block_x"] * values["block_y"] * values["block_z"]
    assert 0 < threads <= THREADS
    assert 0 < values["grid_x"] < 1 << 31
    assert all(0 < values[name] < 1 << 16 for name in ("grid_y", "grid_z"))
    scalars = tuple(one.of(sizes) for one in extra.items)
    assert all(0 <= one < 1 << 31 for one in scalars)
    shapes = tuple(tuple(size.of(sizes) for size in one.shape_expr) for one in tensors)
    return Launch(node.name, node.op_type, tactic, values, scalars, shapes, code)
