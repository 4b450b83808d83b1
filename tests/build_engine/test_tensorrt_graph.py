"""The graphs that TensorRT gets: valid ONNX, and the same numbers as the ordinary ones."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from build_engine import bindings
from build_engine.contract import EngineContract, load_contract
from build_engine.tensorrt_graph import load_of, rewrite, weight_names
from plugins.gpu.device import Gpu
from plugins.onnx_domain import DOMAIN
from plugins.tensorrt.catalog import PLUGINS
from tests.build_engine.cut_graph import cut
from tests.build_engine.mixed_step import OUTPUTS, PADDING, PARTS, mixed_step
from tests.plugins.gpu.interpreter import Interpreter

GPU = Gpu(90, 132)


@pytest.fixture(scope="module")
def contract(tiny_onnx: Path) -> EngineContract:
    return load_contract(tiny_onnx)


@pytest.fixture(scope="module")
def graphs(
    tiny_onnx: Path, contract: EngineContract, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A directory with the rewritten graphs beside their weights."""
    directory = tmp_path_factory.mktemp("rewritten")
    shutil.copy(tiny_onnx / "weights.safetensors", directory)
    for name in bindings.FUNCTIONS:
        model = onnx.load(tiny_onnx / f"{name}.onnx", load_external_data=False)
        made = rewrite(model, load_of(contract.limits, contract.page_size), GPU)
        (directory / f"{name}.onnx").write_bytes(made.SerializeToString())
    return directory


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as started:
        yield started


def load(graphs: Path, name: str) -> onnx.ModelProto:
    return onnx.load(graphs / f"{name}.onnx", load_external_data=False)


@pytest.mark.parametrize("name", bindings.FUNCTIONS)
def test_graphs_are_valid_and_hold_plugins_instead_of_functions(graphs, name):
    onnx.checker.check_model(str(graphs / f"{name}.onnx"), full_check=True)
    model = load(graphs, name)
    assert not model.functions
    assert any(entry.domain == DOMAIN for entry in model.opset_import)
    ours = [node for node in model.graph.node if node.domain == DOMAIN]
    assert ours
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    for node in ours:
        plugin = PLUGINS[node.op_type]
        given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        asked = (given.pop("plugin_namespace"), given.pop("plugin_version"), given.pop("aot"))
        assert asked == (b"dg", b"1", 1)
        assert {name: type(value) for name, value in given.items()} == dict(plugin.attributes)
        assert len(node.input) == len(plugin.inputs)
        assert len(node.output) == len(plugin.outputs)
        assert set(node.output) <= typed


def test_a_layer_is_six_plugins_and_updates_its_pool(graphs, contract):
    model = load(graphs, bindings.STEP)
    layers = contract.geometry.num_layers
    ours = [node for node in model.graph.node if node.domain == DOMAIN]
    names = ("page_write", "attend", "expert_sort", "expert_gate_up")
    every = (*names, "expert_down", "expert_combine")
    assert Counter(node.op_type for node in ours) == dict.fromkeys(every, layers)
    writes = [node for node in ours if node.op_type == "page_write"]
    for layer, node in enumerate(writes):
        before, after = bindings.pool_name(layer), bindings.new_pool_name(layer)
        assert (node.input[3], list(node.output)) == (before, [after])
        readers = [other for other in model.graph.node if before in other.input]
        assert readers == [node], "TensorRT copies an updated input that has other readers"


def test_every_weight_keeps_its_name(graphs, tiny_onnx):
    for name in bindings.FUNCTIONS:
        before = onnx.load(tiny_onnx / f"{name}.onnx", load_external_data=False)
        assert weight_names(load(graphs, name)) == weight_names(before)


def run(interpreter: Interpreter, graphs: Path, name: str, given: dict) -> dict:
    function = "tests.plugins.tensorrt.execution.run_model"
    return interpreter.run(function, str(graphs / f"{name}.onnx"), given, GPU)


def ordinary(engine: Path, name: str, given: dict) -> dict:
    """What onnxruntime makes of an ONNX engine's graph, by the ops' function bodies."""
    runtime = pytest.importorskip("onnxruntime")
    path = str(engine / f"{name}.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def test_the_very_graphs_equal_the_ordinary_ones(interpreter, graphs, contract, tiny_onnx):
    """Every phase in one execution, then both heads over its rows: fp32, node by node.

    Bound: what two exact fp32 implementations of six layers differ by, tenfold.
    """
    given = mixed_step(contract)
    expected = ordinary(tiny_onnx, bindings.STEP, given)
    found = run(interpreter, graphs, bindings.STEP, given)
    covered = sum(count for *_, count in PARTS)
    kept = [index for index, row in enumerate(OUTPUTS) if row < covered]
    assert len(kept) < len(OUTPUTS) <= covered + PADDING
    hidden = expected.pop("hidden")
    np.testing.assert_allclose(found["hidden"], hidden, atol=1e-4, rtol=1e-4)
    for name, pool in expected.items():
        np.testing.assert_allclose(found[name], pool, atol=1e-4, rtol=1e-4)
        assert (pool != given[name.replace("_out", "")]).any()
    rows = hidden[kept]
    count = len(rows)
    labels = np.arange(3 * count, dtype=np.int32).reshape(count, 3) - 1
    temperature = np.linspace(0.4, 0.8, count, dtype=np.float32)
    draws = np.arange(3 * count, dtype=np.int64).reshape(count, 3)
    denoise = {"hidden": rows, "temperature": temperature, "draws": draws}
    heads = {bindings.HEAD: {"hidden": rows, "label_ids": labels}, bindings.DENOISE: denoise}
    for name, inputs in heads.items():
        theirs, ours = ordinary(tiny_onnx, name, inputs), run(interpreter, graphs, name, inputs)
        for output, value in theirs.items():
            np.testing.assert_allclose(ours[output], value, atol=1e-4, rtol=1e-4)


def test_the_real_library_reads_and_builds_all_that_is_no_plugin(graphs, contract, tmp_path):
    """TensorRT-RTX, which has no plugins and builds without a GPU, through the same adapter: its
    parser knows every op, keeps every weight under its name, and both profiles hold.

    A stripped plan needs a GPU there, so the plan that is built is a whole one.
    """
    trt = pytest.importorskip("tensorrt_rtx_bindings")
    from build_engine import tensorrt_builder
    from build_engine.tensorrt_api import Api, Log

    model, signature = cut(load(graphs, bindings.STEP))
    shutil.copy(graphs / "weights.safetensors", tmp_path)
    path = tmp_path / "cut.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path), full_check=True)
    geometry, page = contract.geometry, contract.page_size
    profiles = bindings.profiles(bindings.TENSORRT, geometry, contract.limits, page)
    weights = weight_names(model)
    order = tensorrt_builder.Order(path, signature, profiles, weights, "float32", print)
    api, log = Api(trt, None), Log()
    logger = api.logger(log)
    builder = trt.Builder(logger)
    network = tensorrt_builder._parsed(api, builder, logger, order)
    assert all(network.are_weights_marked_refittable(name) for name in weights)
    assert len(weights) > 20 * geometry.num_layers
    config = api.config(builder, "float32")
    for flag in ("STRIP_PLAN", "REFIT_INDIVIDUAL"):
        assert config.get_flag(getattr(trt.BuilderFlag, flag))
        config.clear_flag(getattr(trt.BuilderFlag, flag))
    assert not config.get_flag(trt.BuilderFlag.TF32)
    for profile in profiles:
        made = tensorrt_builder._profile(builder, signature.inputs, profile)
        assert config.add_optimization_profile(made) >= 0
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM120, 0)
    phases: list[str] = []
    progress = api.progress("cut", phases.append)
    config.progress_monitor = progress
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, log.first
    assert len(bytes(plan)) > sum(path.stat().st_size for path in tmp_path.glob("*.onnx"))
    assert any(phase.startswith("build cut: ") for phase in phases)
