"""Rewrites the ONNX graphs for TensorRT: plugin nodes for the ops, no function bodies."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto

from build_engine.contract import Limits
from plugins.gpu.device import Gpu
from plugins.onnx_domain import DOMAIN
from plugins.tensorrt.chains import Graph, Load, chain, known_shape


def load_of(limits: Limits, page_size: int) -> Load:
    """An execution has at least one canvas or a chunk of a prompt like it."""
    pages = -(-limits.max_context // page_size) + -(-limits.max_canvas // page_size)
    return Load(limits.max_canvas, limits.max_step_tokens, pages * page_size)


def rewrite(model: ModelProto, load: Load, gpu: Gpu) -> ModelProto:
    """The model with a chain of plugins for each node of the ops' domain.

    A pool that goes out is one that came in, updated by the page write that has both: an alias in
    TensorRT, where the runner binds both names to one address.
    """
    made = ModelProto()
    made.CopyFrom(model)
    known = _known(made, load, gpu)
    nodes: list[NodeProto] = []
    for node in made.graph.node:
        nodes += chain(node, known) if node.domain == DOMAIN else [node]
    del made.graph.node[:], made.functions[:]
    made.graph.node.extend(nodes)
    made.graph.value_info.extend(known.added)
    return made


def weight_names(model: ModelProto) -> list[str]:
    """The weights that come from the checkpoint, by its names."""
    external = TensorProto.EXTERNAL
    return [one.name for one in model.graph.initializer if one.data_location == external]


def _known(model: ModelProto, load: Load, gpu: Gpu) -> Graph:
    graph = Graph(gpu, load, {}, {})
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        graph.shapes[value.name], graph.types[value.name] = known_shape(value)
    for tensor in model.graph.initializer:
        graph.shapes[tensor.name] = list(tensor.dims)
        graph.types[tensor.name] = tensor.data_type
    return graph
