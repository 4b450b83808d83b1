"""What of a rewritten graph is no plugin: every plugin's outputs come in, its inputs go out."""

from __future__ import annotations

import onnx

from build_engine.bindings import Binding, Signature
from plugins.onnx_domain import DOMAIN

_NAMES = {1: "float32", 16: "bfloat16", 6: "int32", 7: "int64"}


def _binding(value: onnx.ValueInfoProto) -> Binding:
    kind = value.type.tensor_type
    sizes = tuple(size.dim_value or size.dim_param for size in kind.shape.dim)
    return Binding(value.name, _NAMES[kind.elem_type], sizes)


def cut(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Signature]:
    """The model of the standard ops, and its inputs and outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    values = {one.name: one for one in (*graph.value_info, *graph.output, *graph.input)}
    kept = [node for node in graph.node if node.domain != DOMAIN]
    ours = [node for node in graph.node if node.domain == DOMAIN]
    produced = {name for node in kept for name in node.output}
    used = {name for node in kept for name in node.input}
    given = [one.name for one in graph.input if one.name in used]
    given += sorted({name for node in ours for name in node.output} & used)
    wanted = [one.name for one in graph.output if one.name in produced]
    wanted += sorted({name for node in ours for name in node.input} & produced)
    weights = [one for one in graph.initializer if one.name in used]
    for field in (graph.node, graph.input, graph.output, graph.initializer, graph.value_info):
        del field[:]
    graph.node.extend(kept)
    graph.initializer.extend(weights)
    graph.input.extend(values[name] for name in given)
    graph.output.extend(values[name] for name in wanted)
    others = [entry for entry in made.opset_import if entry.domain != DOMAIN]
    del made.opset_import[:]
    made.opset_import.extend(others)
    inputs = tuple(_binding(values[name]) for name in given)
    return made, Signature(inputs, tuple(_binding(values[name]) for name in wanted))
