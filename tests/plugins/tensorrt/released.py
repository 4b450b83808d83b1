"""Every plugin with inputs of the released checkpoint's sizes, as its chains would have them."""

from onnx import NodeProto, TensorProto, helper

from plugins.gpu.device import Gpu
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.chains import Graph, Load, chain
from plugins.tensorrt.plugin import Plugin, Setting

ROWS, PAGE = 256, 64
_KINDS = {"float32": TensorProto.FLOAT, "bfloat16": TensorProto.BFLOAT16}
_INT32, _INT64, _FLOAT = TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT
_NAMES = {_INT32: "int32", _INT64: "int64", _FLOAT: "float32", TensorProto.BFLOAT16: "bfloat16"}

H200, USUAL = Gpu(90, 132), Load(ROWS, 4096, 8448)

# An op is its node and its inputs: name to type (None: the element's) and shape.
_ATTENTION = "mixed_mask_paged_attention"


def attention(query: int, kv: int, width: int, **attributes) -> tuple[NodeProto, dict]:
    inputs = {
        "q": (None, ["rows", query, width]),
        "k": (None, ["rows", kv, width]),
        "v": (None, ["rows", kv, width]),
        "kv_pool": (None, ["pages", 2, PAGE, kv, width]),
        "slots": (_INT64, ["rows"]),
        "segments": (_INT32, ["segments", 5]),
        "table": (_INT32, ["tables", "pages_per_row"]),
    }
    return helper.make_node(_ATTENTION, [*inputs], ["out", "written"], **attributes), inputs


def experts(count: int, choices: int, hidden: int, inner: int) -> tuple[NodeProto, dict]:
    inputs = {
        "x": (None, ["rows", hidden]),
        "ids": (_INT64, ["rows", choices]),
        "weights": (_FLOAT, ["rows", choices]),
        "gate_up": (None, [count, 2 * inner, hidden]),
        "down": (None, [count, hidden, inner]),
    }
    return helper.make_node("routed_experts", [*inputs], ["out"]), inputs


def label_head(vocabulary: int, hidden: int, softcap: float = 30.0) -> tuple[NodeProto, dict]:
    inputs = {
        "hidden": (None, ["rows", hidden]),
        "embedding": (None, [vocabulary, hidden]),
        "labels": (_INT32, ["rows", "labels"]),
    }
    outputs = ["label_logits", "lse", "entropy", "argmax"]
    return helper.make_node("label_head", [*inputs], outputs, softcap=softcap), inputs


def denoise_head(
    vocabulary: int, hidden: int, softcap: float = 30.0, scale: float = 53.0
) -> tuple[NodeProto, dict]:
    inputs = {
        "hidden": (None, ["rows", hidden]),
        "embedding": (None, [vocabulary, hidden]),
        "temperature": (_FLOAT, ["rows"]),
        "draws": (_INT64, ["rows", 3]),
    }
    outputs = ["argmax", "candidate", "entropy", "log_prob", "candidate_log_prob", "soft"]
    return helper.make_node(
        "denoise_head", [*inputs], outputs, softcap=softcap, scale=scale
    ), inputs


def chain_of(
    made: tuple[NodeProto, dict],
    dtype: str = "bfloat16",
    gpu: Gpu = H200,
    load: Load = USUAL,
) -> tuple[list[NodeProto], Graph]:
    """The plugin nodes of an op, and what is known of their tensors."""
    node, inputs = made
    graph = Graph(
        gpu,
        load,
        {name: shape for name, (_, shape) in inputs.items()},
        {name: kind or _KINDS[dtype] for name, (kind, _) in inputs.items()},
    )
    return chain(node, graph), graph


def released(dtype: str, gpu: Gpu) -> list[tuple[list[NodeProto], Graph]]:
    """The chains of a released layer and of both heads, and one with split keys."""
    short = Load(16, 64, 262_144)
    ops = (attention(16, 8, 256, window=1024), attention(16, 2, 512, window=0))
    heads = (label_head(262_144, 2816), denoise_head(262_144, 2816))
    whole = (*ops, experts(128, 8, 2816, 704), *heads)
    return [
        *(chain_of(op, dtype, gpu) for op in whole),
        chain_of(ops[1], dtype, gpu, short),
    ]


def setting_of(node: NodeProto, graph: Graph, rows: int = ROWS) -> tuple[Plugin, Setting]:
    """A node's plugin, and what its plans follow from in executions of so many rows."""
    plugin = PLUGINS[node.op_type]
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    attributes = {name: given[name] for name in plugin.attributes}
    words = plugin.words([graph.shapes[name] for name in node.input], attributes)
    usual = {name: size if isinstance(size, int | float) else rows for name, size in words.items()}
    dtype = plugin.element([_NAMES[graph.types[name]] for name in node.input], attributes)
    return plugin, Setting(dtype, graph.gpu, attributes, usual)
