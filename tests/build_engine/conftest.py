"""Shared checkpoint for the builder's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint; tests must not write into it."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture
def copy_of(tiny: Path, tmp_path: Path) -> Callable[[], Path]:
    """A maker of private copies of the tiny checkpoint."""
    return lambda: Path(shutil.copytree(tiny, tmp_path / "copy"))
