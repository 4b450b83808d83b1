"""Private copies of the shared checkpoint, and its ONNX engine, for the builder's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from build_engine.build import BuildConfig, build_engine


@pytest.fixture
def copy_of(tiny: Path, tmp_path: Path) -> Callable[[], Path]:
    """A maker of private copies of the tiny checkpoint."""
    return lambda: Path(shutil.copytree(tiny, tmp_path / "copy"))


@pytest.fixture(scope="session")
def tiny_onnx(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint's fp32 ONNX engine: page 8, context 128."""
    pytest.importorskip("onnxscript")
    output = tmp_path_factory.mktemp("engines") / "onnx"
    build = BuildConfig(tiny, output, target="onnx", page_size=8, max_context=128)
    build_engine(build, lambda _: None)
    return output
