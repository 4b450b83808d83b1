"""What onnxruntime cannot serve is said in one sentence, before it is tried."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

from build_engine.contract import load_contract
from build_engine.errors import EngineError
from triton_backend.device.runner import DeviceRunner
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def test_an_onnx_engine_opens_by_its_contract_alone(tiny_onnx: Path) -> None:
    runner = open_runner(tiny_onnx, load_contract(tiny_onnx), RunnerOptions(threads=1))
    assert isinstance(runner, DeviceRunner)
    assert runner.embedding is not None
    assert list(runner.embedding.shape) == [512, 64]


def test_bfloat16_is_refused(tiny_onnx: Path) -> None:
    contract = dataclasses.replace(load_contract(tiny_onnx), dtype="bfloat16")
    with pytest.raises(EngineError, match="dtype is bfloat16, .* `--dtype float32`"):
        open_runner(tiny_onnx, contract, RunnerOptions())


def copy_of(engine: Path, where: Path, *without: str) -> Path:
    return Path(shutil.copytree(engine, where, ignore=shutil.ignore_patterns(*without)))


def test_an_engine_without_weights_is_refused(tiny_onnx: Path, tmp_path: Path) -> None:
    engine = copy_of(tiny_onnx, tmp_path / "engine", "weights.safetensors")
    with pytest.raises(EngineError, match=r"it was built with --weightless; rebuild it without"):
        open_runner(engine, load_contract(engine, verify=False), RunnerOptions())


def test_a_broken_graph_is_refused(tiny_onnx: Path, tmp_path: Path) -> None:
    engine = copy_of(tiny_onnx, tmp_path / "engine")
    (engine / "head.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match=r"head\.onnx does not load in onnxruntime .*; rebuild"):
        open_runner(engine, load_contract(engine, verify=False), RunnerOptions())


def test_a_missing_package_is_named(tiny_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triton_backend.device.onnx_executor", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineError, match="needs onnxruntime, which does not import here"):
        open_runner(tiny_onnx, load_contract(tiny_onnx), RunnerOptions())
