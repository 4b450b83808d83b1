"""An engine appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engine.contract import CONTRACT_FILE
from build_engine.engine_dir import building, publish
from build_engine.errors import EngineError
from tests.build_engine.test_contract import write


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), building(tmp_path / "engine") as directory:
        (directory / "step.pt2").write_bytes(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_failed_build_keeps_the_old_engine(tmp_path: Path) -> None:
    output = tmp_path / "engine"
    output.mkdir()
    write(output)
    with pytest.raises(EngineError, match="No space left"), building(output):
        raise OSError(28, "No space left on device")
    assert sorted(p.name for p in output.iterdir()) == [CONTRACT_FILE, "step.pt2"]
    assert [p.name for p in tmp_path.iterdir()] == ["engine"]


def test_publishing_twice_replaces_the_engine(tmp_path: Path) -> None:
    output = tmp_path / "an engine"
    for _ in range(2):
        with building(output) as directory:
            publish(directory, output, write(directory))
    assert [p.name for p in tmp_path.iterdir()] == ["an engine"]


def test_a_directory_that_is_no_engine_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(EngineError, match="not an engine"), building(tmp_path):
        pass
    assert (tmp_path / "notes.txt").read_text() == "keep"


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".engine.building-999999999-abc"
    stale.mkdir()
    with building(tmp_path / "engine"):
        assert not stale.exists()
