"""Whatever stands in their integer inputs, plugins stay within their tensors and end.

TensorRT times tactics on inputs of its own making: there an access out of bounds ends the build.
"""

from __future__ import annotations

import pytest
import torch
from onnx import NodeProto
from torch import Tensor
from triton.runtime.errors import InterpreterError

from plugins.gpu import attention_plan, heads_plan
from plugins.gpu.device import Gpu
from plugins.spec import FIRST_ROW, TABLE_ROW, Phase
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.chains import Graph, Load
from tests.plugins.tensorrt import released

GPU = Gpu(90, 132)
RUN = "tests.plugins.tensorrt.watched_plugin.run"
SIZES = {"rows": 7, "pages": 4, "segments": 5, "tables": 2, "pages_per_row": 3, "labels": 3}
PAGE = 16
WHOLE, LONG = Load(256, 4096, 32), Load(16, 64, 64)
FEW, MANY, FAR = 4, 80, 1 << 20
"""Often valid below it: numbers of rows, pages and experts; slots and positions; never valid."""


def fixed(made: tuple[NodeProto, dict]) -> tuple[NodeProto, dict]:
    """The op with a number for every size."""
    node, inputs = made
    numbers = {
        name: (kind, [SIZES.get(size, size) for size in shape])
        for name, (kind, shape) in inputs.items()
    }
    return node, numbers


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodeProto, Graph]]:
    """Every plugin: narrow heads and wide ones, whose q is read by columns; three pages of 16 are
    no whole number of tiles of keys."""
    monkeypatch.setattr(released, "PAGE", PAGE)
    monkeypatch.setattr(attention_plan, "_LEAST_SPAN", 32)
    monkeypatch.setattr(heads_plan, "_CHUNK_TILES", 2)
    ops = (
        (released.attention(4, 2, 16, window=20), WHOLE),
        (released.attention(2, 1, 256, window=0), WHOLE),
        (released.attention(2, 1, 16, window=0), LONG),
        (released.experts(3, 2, 40, 24), WHOLE),
        (released.label_head(130, 32), WHOLE),
        (released.denoise_head(130, 32), WHOLE),
    )
    chains = [released.chain_of(fixed(made), "float32", GPU, load) for made, load in ops]
    found = [(node, graph) for nodes, graph in chains for node in nodes]
    assert {node.op_type for node, _ in found} == set(PLUGINS)
    return found


def numbers(kind: str, shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Integers of a kind: all zeros, the ends of their range, any bits, or often valid ones."""
    limits = torch.iinfo(dtype)
    if kind == "zeros":
        return torch.zeros(shape, dtype=dtype)
    if kind == "ends":
        either = torch.rand(shape, generator=generator) < 0.5
        return torch.where(either, limits.min, limits.max).to(dtype)
    any_bits = torch.randint(limits.min, limits.max, shape, dtype=dtype, generator=generator)
    if kind == "bits":
        return any_bits
    few, many = (
        torch.randint(-1, most, shape, dtype=dtype, generator=generator) for most in (FEW, MANY)
    )
    chance = torch.rand(shape, generator=generator)
    return torch.where(chance < 0.6, few, torch.where(chance < 0.9, many, any_bits))


def inputs_of(node: NodeProto, graph: Graph, kind: str, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name in node.input:
        dtype, shape = getattr(torch, graph.element(name)), graph.shapes[name]
        tensors[name] = (
            torch.randn(shape, generator=generator).to(dtype)
            if dtype.is_floating_point
            else numbers(kind, shape, dtype, generator)
        )
    return tensors


def counts(node: NodeProto, graph: Graph) -> bool:
    """Whether it has integers among its inputs."""
    return any(graph.element(name).startswith("int") for name in node.input)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *((kind, 0) for kind in ("zeros", "ends", "bits")),
        *(("mixed", seed) for seed in range(3)),
    ],
)
def test_no_plugin_leaves_its_tensors(interpreter, plugins, kind, seed):
    for node, graph in plugins:
        if counts(node, graph):
            tensors = inputs_of(node, graph, kind, seed)
            interpreter.call(RUN, node.SerializeToString(), tensors, GPU, 1 + seed)


def test_plugins_without_integers_do_not_either(interpreter, plugins):
    """Ids pass through some of them as bits of floats."""
    for node, graph in plugins:
        if not counts(node, graph):
            tensors = inputs_of(node, graph, "zeros", 0)
            nothing = {name: torch.full_like(one, torch.nan) for name, one in tensors.items()}
            interpreter.call(RUN, node.SerializeToString(), nothing, GPU)


@pytest.mark.parametrize("name", ["attend", "attend_split"])
@pytest.mark.parametrize("phase", Phase)
def test_attention_does_not_read_past_the_last_table_row(interpreter, plugins, name, phase):
    """A tile of keys reaches beyond the row's positions, and the segment's keys go on there."""
    node, graph = next((node, graph) for node, graph in plugins if node.op_type == name)
    tensors = inputs_of(node, graph, "zeros", 0)
    for committed in (3 * PAGE - 1, 4 * PAGE, torch.iinfo(torch.int32).max):
        tensors["segments"][:] = torch.tensor([0, 3, phase, committed, SIZES["tables"] - 1])
        interpreter.call(RUN, node.SerializeToString(), tensors, GPU)


def far(node: NodeProto, graph: Graph, scalar: str) -> dict[str, Tensor]:
    """Sound inputs, but for numbers that lie far past the end of what the scalar counts."""
    tensors = inputs_of(node, graph, "zeros", 0)
    for name, one in tensors.items():
        if name == "segments":
            one[:2] = torch.tensor([[0, 3, Phase.DENOISE, 30, 0], [3, 4, Phase.PREFILL, 9, 1]])
            if scalar in ("rows", "tables"):
                one[:, FIRST_ROW if scalar == "rows" else TABLE_ROW] = FAR
        elif name == "table":
            one[:] = FAR if scalar == "pages" else 0
        elif name.endswith("starts"):
            one[:] = FAR + torch.arange(len(one))
        elif not one.is_floating_point():
            one[:] = FAR
    return tensors


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        ("page_write", "pages"),
        *(("attend", scalar) for scalar in ("rows", "tables", "pages")),
        *(("attend_split", scalar) for scalar in ("rows", "tables", "pages")),
        *((f"expert_{one}", "pairs") for one in ("gate_up", "down", "combine")),
    ],
)
def test_each_size_that_a_plugin_is_told_is_what_keeps_it_there(interpreter, plugins, name, scalar):
    """The same numbers lead out of the tensors where that size is said to be without end."""
    node, graph = next((node, graph) for node, graph in plugins if node.op_type == name)
    content, tensors = node.SerializeToString(), far(node, graph, scalar)
    interpreter.call(RUN, content, tensors, GPU)
    with pytest.raises(InterpreterError, match="out of bounds"):
        interpreter.call(RUN, content, tensors, GPU, 1, scalar)
