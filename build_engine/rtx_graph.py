"""Rewrites the ONNX graphs for TensorRT-RTX: no functions, no plugins, ops that its parser knows.

The pools are only read. The step returns its rows' keys and values, which the runner stores at
their slots, so that no pool is copied.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper

from build_engine.bindings import LANES, STEP, Binding, Signature
from plugins.onnx_domain import DOMAIN, VERSION
from plugins.onnx_functions import functions

_XOR_TABLE = "xor_table"
_ATTENTION = "mixed_mask_paged_attention"


def rewrite(name: str, model: ModelProto, signature: Signature) -> ModelProto:
    """A function's graph as TensorRT-RTX gets it, with that target's bindings."""
    return rewrite_step(model, signature) if name == STEP else plain(model)


def rewrite_step(model: ModelProto, signature: Signature) -> ModelProto:
    """The step with pools that are only read, and nothing but standard ops."""
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    del graph.output[1:]
    graph.input.append(_value(LANES))
    outputs = iter(signature.outputs[1:])
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == _ATTENTION:
            rows = next(outputs)
            nodes += _attend(node, rows.name)
            graph.output.append(_value(rows))
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return plain(made)


def _attend(node: NodeProto, rows: str) -> list[NodeProto]:
    """The same attention over rows and pool apart, and the rows as an output."""
    q, k, v, *paging = node.input
    both = helper.make_node("rows_of", [k, v], [rows], domain=DOMAIN)
    attend = NodeProto()
    attend.CopyFrom(node)
    attend.op_type = "attend"
    del attend.input[:], attend.output[1:]
    attend.input.extend([q, rows, *paging, LANES.name])
    return [both, attend]


def _value(binding: Binding) -> onnx.ValueInfoProto:
    kinds = {"float32": TensorProto.FLOAT, "bfloat16": TensorProto.BFLOAT16}
    kinds |= {"int64": TensorProto.INT64, "int32": TensorProto.INT32}
    return helper.make_tensor_value_info(binding.name, kinds[binding.dtype], binding.shape)


def plain(model: ModelProto) -> ModelProto:
    """The model with every function's body in its place, and no op that the parser lacks."""
    return _inlined(_without_xor(_inlined(model)))


def _inlined(model: ModelProto) -> ModelProto:
    del model.functions[:]
    model.functions.extend(functions().values())
    if not any(entry.domain == DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    inlined = inliner.inline_local_functions(model)
    kept = [entry for entry in inlined.opset_import if entry.domain != DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    return inlined


def _without_xor(model: ModelProto) -> ModelProto:
    """The random draws with `BitwiseXor` looked up byte by byte."""
    found = [node for node in model.graph.node if node.op_type == "BitwiseXor"]
    for node in found:
        node.op_type, node.domain = "xor_by_table", DOMAIN
        node.input.append(_XOR_TABLE)
    if found:
        first, second = np.divmod(np.arange(1 << 16, dtype=np.int64), 1 << 8)
        model.graph.initializer.append(numpy_helper.from_array(first ^ second, _XOR_TABLE))
    return model
