"""Private copies of the shared checkpoint, for the builder's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build_engine.refusals import Refusal


@pytest.fixture
def copy_of(tiny: Path, tmp_path: Path) -> Callable[[], Path]:
    """A maker of private copies of the tiny checkpoint."""
    return lambda: Path(shutil.copytree(tiny, tmp_path / "copy"))


@pytest.fixture
def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Refusal:
    """A run of the builder that must fail as it promises; returns what it says."""
    return Refusal(tmp_path / "out" / "engine", capfd)
