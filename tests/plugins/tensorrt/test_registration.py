"""Plugins as TensorRT's Python interface meets them; the double holds the validators' rules."""

from __future__ import annotations

import pytest
from onnx import helper

from plugins.gpu.device import Gpu
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.registration import Registry, register
from tests.plugins.gpu.interpreter import ROOT
from tests.plugins.tensorrt import released
from tests.tensorrt_double import library
from tests.tensorrt_double.lifecycle import Lives
from tests.tensorrt_double.network import INetworkDefinition, IOptimizationProfile

HEADS = {"query": 4, "kv": 2, "width": 16}
ROWS = (1, 33, 70)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> library.Memory:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(ROOT / ".cache" / "triton"))
    made = library.install(monkeypatch, "11.4.0.106")
    import tensorrt

    register(Registry(tensorrt, tensorrt.plugin, Gpu(90, 132)))
    register(Registry(tensorrt, tensorrt.plugin, Gpu(90, 132)))
    return made


def test_every_plugin_is_registered_once_with_tactics_and_kernels(memory):
    assert set(memory.plugins.known) == {f"dg::{name}" for name in PLUGINS}
    for definition in memory.plugins.known.values():
        assert definition.tune is not None
        assert definition.implement is not None


def test_a_pool_is_written_in_place_by_a_real_kernel(memory):
    """The whole life of one plugin, its kernel compiled: aliases, tactics, PTX, launches."""
    node, inputs = released.attention(**HEADS, window=0)
    nodes, graph = released.chain_of((node, inputs), "float32", Gpu(90, 132))
    values = [
        helper.make_tensor_value_info(name, graph.types[name], graph.shapes[name])
        for name in nodes[0].input
    ]
    model = helper.make_model(helper.make_graph(nodes[:1], "write", values, graph.added[:1]))
    network = INetworkDefinition(0, model, {nodes[0].name: memory.plugins.known["dg::page_write"]})
    profile = IOptimizationProfile()
    for value in values:
        sizes = graph.shapes[value.name]
        profile.set_shape(
            value.name,
            *([row if isinstance(size, str) else size for size in sizes] for row in ROWS),
        )
    launches = list(Lives(network, profile).launches())
    assert {one.tactic for one in launches} == {1, 2}
    for one in launches:
        assert one.parameters["grid_x"] == one.shapes[0][0] in ROWS
        assert f".reqntid {one.parameters['block_x']}" in one.code
        assert one.code.count(".param .u64") == 5
        assert one.shapes[-1] == one.shapes[3]


def test_an_attribute_of_the_wrong_type_is_refused_by_the_double(memory):
    import tensorrt

    def describe(x: tensorrt.plugin.TensorDesc, sizes: list) -> tuple[tensorrt.plugin.TensorDesc]:
        return (x.like(),)

    describe.__annotations__.update(
        x=tensorrt.plugin.TensorDesc, sizes=list, **{"return": tuple[tensorrt.plugin.TensorDesc]}
    )
    with pytest.raises(ValueError, match="'sizes' is not allowed"):
        tensorrt.plugin.register("dg::other")(describe)
