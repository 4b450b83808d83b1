"""TensorRT-RTX plans, built for real on a CPU; nothing here has run on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from build_engine.__main__ import main
from build_engine.contract import load_contract, verify_files
from build_engine.errors import EngineError
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner

pytest.importorskip("tensorrt_rtx_bindings")
pytest.importorskip("onnxscript")
from build_engine import bindings, target_rtx
from build_engine.rtx_builder import VERSION, build_plan
from build_engine.rtx_plan import check_plan

ENGINE = ("--target", "tensorrt-rtx", "--page-size", "8", "--max-context", "128")
SMALL = (*ENGINE, "--max-step-tokens", "64", "--max-segments", "8")


def arguments(checkpoint: Path, output: Path, *more: str) -> list[str]:
    return ["--checkpoint", str(checkpoint), "--output", str(output), *more]


@pytest.fixture(scope="module")
def engine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("rtx") / "engine"
    assert main(arguments(tiny, output, *SMALL)) == 0
    return output


def test_an_engine_holds_a_plan_of_each_function(engine: Path) -> None:
    """Inputs and outputs are compared with the contract by the build itself."""
    contract = load_contract(engine)
    verify_files(engine, contract)
    plans = {f"{name}.engine" for name in bindings.FUNCTIONS}
    assert {path.name for path in engine.glob("*.engine")} == plans <= set(contract.files)
    assert not list(engine.glob("*.onnx"))
    assert contract.builder["compute_capabilities"] == ["8.6", "8.9", "12.0", "12.1"]


def test_a_plan_reads_back_and_a_broken_one_does_not(engine: Path, tmp_path: Path) -> None:
    contract = load_contract(engine)
    wanted = bindings.signatures(contract)
    head = engine / "head.engine"
    check_plan(head, wanted[bindings.HEAD], VERSION)
    with pytest.raises(EngineError, match="has no tensors named temperature, draws"):
        check_plan(head, wanted[bindings.DENOISE], VERSION)
    with pytest.raises(EngineError, match=r"built by TensorRT-RTX .*, version 9.9 is installed"):
        check_plan(head, wanted[bindings.HEAD], "9.9")
    short = tmp_path / "head.engine"
    short.write_bytes(head.read_bytes()[:-1])
    with pytest.raises(EngineError, match="its header says"):
        check_plan(short, wanted[bindings.HEAD], VERSION)
    short.write_bytes(b"no plan")
    with pytest.raises(EngineError, match="is not a TensorRT-RTX plan"):
        check_plan(short, wanted[bindings.HEAD], VERSION)


def test_a_graph_that_does_not_build_is_one_sentence(engine: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("BitwiseXor", ["a", "a"], ["b"])
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.INT64, ["n"]) for n in "ab"]
    graph = onnx.helper.make_graph([node], "xor", values[:1], values[1:])
    path = tmp_path / "xor.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=10), path)
    one = [bindings.Binding(name, "int64", ("n",)) for name in "ab"]
    signature = bindings.Signature((one[0],), (one[1],))
    with pytest.raises(EngineError, match="does not read xor.onnx"):
        build_plan(path, signature, {"n": bindings.Range(1, 2, 4)}, ["8.9"], lambda _: None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--compute-capability", "9.0"), "9.0 is not one of 7.5, 8.0, 8.6, 8.9, 12.0, 12.1"),
        (("--compute-capability", "7.5", "--dtype", "bfloat16"), "bfloat16 needs"),
        (("--weightless",), "a tensorrt-rtx engine holds its weights"),
        (("--max-step-tokens", "8192", "--max-segments", "256"), "lower --max-segments"),
    ],
)
def test_what_cannot_be_built_is_said_first(
    tiny: Path, tmp_path: Path, options: tuple, said: str, capfd: pytest.CaptureFixture
) -> None:
    assert main(arguments(tiny, tmp_path / "engine", *SMALL, *options)) == 1
    assert said in " ".join(capfd.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    for name in ("build_engine.rtx_builder", "build_engine.target_rtx"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", None)
    assert main(arguments(tiny, tmp_path / "engine", *SMALL)) == 1
    assert "[tensorrt-rtx]'" in " ".join(capfd.readouterr().err.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_server_without_a_gpu_says_so(engine: Path) -> None:
    with pytest.raises(EngineError, match="a tensorrt-rtx engine needs an NVIDIA GPU"):
        open_runner(engine, load_contract(engine), RunnerOptions())


def test_default_capabilities_are_known() -> None:
    assert set(target_rtx.DEFAULT_CAPABILITIES) <= set(target_rtx.COMPUTE_CAPABILITIES)
