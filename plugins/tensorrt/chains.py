"""Each `dg` node of an ONNX graph as a chain of plugin nodes; knows no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from plugins.gpu.attention_plan import AttentionPlan, AttentionShape, plan_attention, split
from plugins.gpu.device import Gpu, tiles_of
from plugins.gpu.heads_plan import plan_denoise_head, plan_label_head
from plugins.onnx_domain import DOMAIN
from plugins.tensorrt import attention, experts, heads
from plugins.tensorrt.plugin import ELEMENT, ELEMENTS, Attributes, Plugin
from plugins.tensorrt.sizes import evaluate

VERSION = "1"
"""Of every plugin; TensorRT's Python plugins know no other."""

_PARTIAL_BYTES = 256 << 20
_TYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}
_NAMES = {number: name for name, number in _TYPES.items()}

Shape = Sequence[int | str]


@dataclass(frozen=True)
class Load:
    """What the choice between plugins looks at: rows of the shortest usual and of the longest
    execution, and positions that a table row can hold."""

    usual_rows: int
    most_rows: int
    positions: int


@dataclass
class Graph:
    """What is known of a graph's tensors; chains add theirs."""

    gpu: Gpu
    load: Load
    shapes: MutableMapping[str, Shape]
    types: MutableMapping[str, int]
    added: list[ValueInfoProto] = field(default_factory=list)

    def element(self, name: str) -> str:
        return _NAMES[self.types[name]]


class _Chain:
    """Collects the nodes that stand for one node."""

    def __init__(self, node: NodeProto, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.nodes: list[NodeProto] = []
        self.attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}

    def shape(self, name: str) -> Shape:
        return self.graph.shapes[name]

    def size(self, name: str, axis: int) -> int:
        """A size that is fixed."""
        size = self.shape(name)[axis]
        assert isinstance(size, int), f"{name} has shape {self.shape(name)}"
        return size

    def add(
        self,
        plugin: Plugin,
        inputs: Sequence[str],
        outputs: Sequence[str] = (),
        attributes: Attributes | None = None,
        mark: str = "",
    ) -> list[str]:
        """One plugin more; its outputs' names, made up where none are given."""
        graph, stem = self.graph, f"{self.node.output[0]}/{plugin.name}{mark}"
        names = list(outputs) or [f"{stem}/{one.name}" for one in plugin.outputs]
        attributes = attributes or {}
        fixed = {"plugin_namespace": DOMAIN, "plugin_version": VERSION, "aot": 1}
        given: dict[str, Any] = {**fixed, **attributes}
        made = helper.make_node(plugin.name, inputs, names, name=stem, domain=DOMAIN, **given)
        self.nodes.append(made)
        words = plugin.words([graph.shapes[name] for name in inputs], attributes)
        dtypes = plugin.output_dtypes([graph.element(name) for name in inputs], attributes)
        for name, tensor, dtype in zip(names, plugin.outputs, dtypes, strict=True):
            if name not in graph.shapes:
                sizes = [evaluate(size, words) for size in tensor.sizes or ()]
                graph.shapes[name], graph.types[name] = sizes, _TYPES[dtype]
                graph.added.append(helper.make_tensor_value_info(name, _TYPES[dtype], sizes))
        return names

    def number(self, name: str) -> int:
        """The attribute that tells a plugin the element type of an input it does not have."""
        element = self.graph.element(name)
        return next(number for number, known in ELEMENTS.items() if known == element)


def chain(node: NodeProto, graph: Graph) -> list[NodeProto]:
    """The plugin nodes of a `dg` node, in order; the last ones have its outputs' names."""
    made = _Chain(node, graph)
    _CHAINS[node.op_type](made)
    return made.nodes


def _attention(made: _Chain) -> None:
    q, k, v, pool, slots, segments, table = made.node.input
    out, written = made.node.output
    made.add(attention.PAGE_WRITE, [k, v, slots, pool], [written])
    plan = _attention_plan(made)
    seen = [q, written, segments, table]
    if plan.splits == 1:
        made.add(attention.ATTEND, seen, [out], {"window": plan.shape.window})
        return
    spans = {"splits": plan.splits, "span": plan.span}
    partial = made.add(attention.ATTEND_SPLIT, seen, attributes=spans)
    made.add(attention.ATTEND_MERGE, partial, [out], {ELEMENT: made.number(q)})


def _attention_plan(made: _Chain) -> AttentionPlan:
    """Split where the shortest usual execution leaves processors idle and the longest has room.

    A network has one chain for every shape, so this is settled when it is built.
    """
    graph, (q, _, _, pool, *_) = made.graph, made.node.input
    _, _, page, kv_heads, width = (
        size if isinstance(size, int) else 0 for size in made.shape(pool)
    )
    shape = AttentionShape(made.size(q, 1), kv_heads, width, page, made.attributes["window"])
    whole = plan_attention(shape, graph.element(q), graph.gpu)
    plan = split(whole, graph.load.usual_rows, graph.load.positions, graph.gpu)
    partial = graph.load.most_rows * shape.query_heads * plan.splits * (shape.width + 1) * 4
    return plan if partial <= _PARTIAL_BYTES else whole


def _experts(made: _Chain) -> None:
    x, ids, weights, gate_up, down = made.node.input
    count, choices = made.size(gate_up, 0), made.size(ids, 1)
    order, places, starts = made.add(experts.SORT, [ids], attributes={"experts": count})
    given = {"choices": choices}
    (inner,) = made.add(experts.GATE_UP, [x, order, starts, gate_up], attributes=given)
    (produced,) = made.add(experts.DOWN, [inner, starts, down])
    kind = {ELEMENT: made.number(x)}
    made.add(experts.COMBINE, [produced, places, weights], made.node.output, kind)


def _label_head(made: _Chain) -> None:
    hidden, embedding, labels = made.node.input
    logits, *results = made.node.output
    vocabulary, width = made.size(embedding, 0), made.size(embedding, 1)
    softcap = made.attributes["softcap"]
    element, gpu = made.graph.element(hidden), made.graph.gpu
    spans = plan_label_head(width, vocabulary, softcap, element, 1, gpu).spans
    folds = f"{logits}/folds"
    given = {"softcap": softcap, "spans": spans}
    made.add(heads.LABEL_FOLD, [hidden, embedding, labels], [logits, folds], given)
    made.add(heads.LABEL_MERGE, [folds], results)


def _denoise_head(made: _Chain) -> None:
    """Chunk by chunk; what the first one does not read is any tensor of the right type."""
    hidden, embedding, temperature, draws = made.node.input
    vocabulary, width = made.size(embedding, 0), made.size(embedding, 1)
    softcap, scale = made.attributes["softcap"], made.attributes["scale"]
    element = made.graph.element(hidden)
    plan = plan_denoise_head((width, vocabulary), softcap, scale, element, 1, made.graph.gpu)
    state = sums = ""
    for chunk in range(tiles_of(plan.tiles, plan.chunk)):
        fold = {"softcap": softcap, "chunk": chunk, "tiles": plan.chunk}
        fold |= {"chunk_tiles": plan.tiles_in(chunk), "chunk_width": plan.width}
        inputs, mark = [hidden, embedding, temperature, draws], f".{chunk}"
        powers, folds = made.add(heads.DENOISE_FOLD, inputs, (), fold, mark)
        inputs = [folds, temperature, state or folds]
        merge = {"chunk": chunk, "all_tiles": plan.tiles}
        state, factors = made.add(heads.DENOISE_MERGE, inputs, (), merge, mark)
        inputs = [powers, embedding, factors, state, sums or factors]
        soft = {"chunk": chunk, "splits": plan.splits}
        (sums,) = made.add(heads.DENOISE_SOFT, inputs, (), soft, mark)
    finish = {"scale": scale, ELEMENT: made.number(hidden)}
    made.add(heads.DENOISE_FINISH, [state, sums, temperature], made.node.output, finish)


_CHAINS: Mapping[str, Callable[[_Chain], None]] = {
    "mixed_mask_paged_attention": _attention,
    "routed_experts": _experts,
    "label_head": _label_head,
    "denoise_head": _denoise_head,
}


def known_shape(value: ValueInfoProto) -> tuple[Shape, int]:
    """A value's shape, dynamic sizes by name, and its type's number."""
    kind: Any = value.type.tensor_type
    sizes = [size.dim_value or size.dim_param or "?" for size in kind.shape.dim]
    return sizes, int(kind.elem_type)
