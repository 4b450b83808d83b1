"""Checkpoints and engines that many tests share; built once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engine.build import BuildConfig, build_engine
from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint; tests must not write into it."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def tiny_engine(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's fp32 CPU engine: page 8, context 128."""
    output = tmp_path_factory.mktemp("engines") / "tiny"
    build_engine(BuildConfig(tiny, output, page_size=8, max_context=128), lambda _: None)
    return output


@pytest.fixture(scope="session")
def tiny_onnx(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's fp32 ONNX engine: page 8, context 128."""
    pytest.importorskip("onnxscript")
    output = tmp_path_factory.mktemp("engines") / "onnx"
    build = BuildConfig(tiny, output, target="onnx", page_size=8, max_context=128)
    build_engine(build, lambda _: None)
    return output
