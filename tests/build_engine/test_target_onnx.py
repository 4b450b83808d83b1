"""The ONNX engine: what its graphs are made of, and every way to fail."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from build_engine import bindings
from build_engine.__main__ import main
from build_engine.config import load_config
from build_engine.contract import load_contract, verify_files
from build_engine.weights import weight_table

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
ENGINE = ("--target", "onnx", "--page-size", "8", "--max-context", "128")


def arguments(checkpoint: Path, output: Path, *more: str) -> list[str]:
    return ["--checkpoint", str(checkpoint), "--output", str(output), *more]


def load(engine: Path, name: str) -> onnx.ModelProto:
    return onnx.load(engine / f"{name}.onnx", load_external_data=False)


@pytest.mark.slow
def test_an_engine_is_whole_and_built_alike_twice(
    tiny: Path, tiny_onnx: Path, tmp_path: Path
) -> None:
    """Reproducible to the byte: the second build runs in a fresh process."""
    output = tmp_path / "again"
    command = [sys.executable, "-m", "build_engine", *arguments(tiny, output, *ENGINE)]
    subprocess.run(command, check=True, capture_output=True)
    verify_files(output, load_contract(output))
    assert load_contract(output) == load_contract(tiny_onnx)
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


@pytest.mark.parametrize("name", bindings.FUNCTIONS)
def test_bindings_are_those_of_the_contract(tiny_onnx: Path, name: str) -> None:
    graph = load(tiny_onnx, name).graph
    wanted = bindings.signatures(load_contract(tiny_onnx))[name]
    for values, ours in ((graph.input, wanted.inputs), (graph.output, wanted.outputs)):
        for value, binding in zip(values, ours, strict=True):
            tensor = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            sizes = tuple(size.dim_param or size.dim_value for size in tensor.shape.dim)
            found = bindings.Binding(value.name, str(dtype), sizes)
            assert found == binding


def test_each_op_is_one_node_with_a_body(tiny_onnx: Path) -> None:
    """What a TensorRT plugin takes the place of; only projections are standard ops."""
    found = {}
    for name in bindings.FUNCTIONS:
        model = load(tiny_onnx, name)
        nodes = [node.op_type for node in model.graph.node if node.domain == "dg"]
        found |= {op: nodes.count(op) for op in nodes}
        assert set(nodes) <= {function.name for function in model.functions}
        assert {(entry.domain, entry.version) for entry in model.opset_import} == {
            ("", 23),
            ("dg", 1),
        }
    assert found == {
        "mixed_mask_paged_attention": 6,
        "routed_experts": 6,
        "label_head": 1,
        "denoise_head": 1,
    }


def test_weights_are_the_checkpoints_by_name_and_value(tiny: Path, tiny_onnx: Path) -> None:
    source = load_file(str(tiny / "model.safetensors"))
    for name in bindings.FUNCTIONS:
        model = onnx.load(tiny_onnx / f"{name}.onnx")
        held = {tensor.name: tensor for tensor in model.graph.initializer}
        named = {key: tensor for key, tensor in held.items() if key in source}
        for key, tensor in named.items():
            assert np.array_equal(onnx.numpy_helper.to_array(tensor), source[key].numpy()), key
        # What is no weight is a small constant of the graph.
        assert sum(np.prod(held[key].dims) for key in held.keys() - named.keys()) < 1000
        if name == bindings.STEP:
            assert len(named) == len(weight_table(load_config(tiny)))


def test_a_weightless_graph_reads_the_checkpoints_own_file(tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "engine"
    assert main(arguments(tiny, output, *ENGINE, "--weightless")) == 0
    assert not list(output.glob("*.safetensors"))
    for name in bindings.FUNCTIONS:
        shutil.copy(output / f"{name}.onnx", tmp_path)
    shutil.copy(tiny / "model.safetensors", tmp_path)
    key = "model.decoder.layers.3.experts.down_proj"
    tensors = {t.name: t for t in onnx.load(tmp_path / "step.onnx").graph.initializer}
    found = torch.from_numpy(onnx.numpy_helper.to_array(tensors[key]).copy())
    assert torch.equal(found, load_file(str(tiny / "model.safetensors"))[key])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--weightless", "--dtype", "bfloat16"), "needs the checkpoint's own --dtype"),
        (("--compute-capability", "8.9"), "is for GPU targets, not for --target onnx"),
    ],
)
def test_options_that_do_not_fit(
    tiny: Path, tmp_path: Path, options: tuple, said: str, capfd: pytest.CaptureFixture
) -> None:
    assert main(arguments(tiny, tmp_path / "engine", *ENGINE, *options)) == 1
    assert said in " ".join(capfd.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(
    tiny: Path,
    tmp_path: Path,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
) -> None:
    for name in list(sys.modules):
        if "onnx" in name and name.startswith(("plugins.", "build_engine.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(arguments(tiny, tmp_path / "engine", *ENGINE)) == 1
    said = " ".join(capfd.readouterr().err.split())
    assert f"import of {package}" in said
    assert "pip install 'diffusiongemma-triton[onnx]'" in said
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """No file may grow beyond what the weights need, as if there were no room."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limit[1]))
    try:
        code = main(arguments(tiny, tmp_path / "engine", *ENGINE))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert code == 1
    assert "writing the engine" in " ".join(capfd.readouterr().err.split())
    assert not list(tmp_path.iterdir())
