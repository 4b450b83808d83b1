"""Private copies of the shared checkpoint, for the builder's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def copy_of(tiny: Path, tmp_path: Path) -> Callable[[], Path]:
    """A maker of private copies of the tiny checkpoint."""
    return lambda: Path(shutil.copytree(tiny, tmp_path / "copy"))
