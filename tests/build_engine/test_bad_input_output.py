"""Where an engine may go, and what is left of a build that cannot finish: nothing half-written."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from build_engine import exchange
from build_engine.contract import CONTRACT_FILE, load_contract
from build_engine.engine_dir import building, check_output, publish
from build_engine.errors import EngineError
from tests.build_engine.refusals import Refusal
from tests.build_engine.test_contract import write


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An earlier engine at the output."""
    output = tmp_path / "out" / "engine"
    output.mkdir(parents=True)
    write(output)
    return output


def leftovers(output: Path) -> list[str]:
    return sorted(path.name for path in output.parent.iterdir() if path != output)


def test_the_checkpoint_is_never_the_output(copy_of: Callable[[], Path], refused: Refusal) -> None:
    """It holds a config.json, as an engine does."""
    directory = copy_of()
    assert "is or lies in --checkpoint" in refused(directory, output=directory)


def test_an_engine_is_not_written_into_its_checkpoint(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    assert "is or lies in" in refused(directory, output=directory / "a" / "engine")
    link = directory.parent / "link"
    link.symlink_to(directory)
    assert "is or lies in" in refused(directory, output=link / "engine")


def test_another_checkpoint_is_never_replaced(
    copy_of: Callable[[], Path], tiny: Path, refused: Refusal
) -> None:
    directory = copy_of()
    message = refused(tiny, output=directory)
    assert "not an engine directory alone: it holds chat_template.jinja" in message


@pytest.mark.parametrize("name", ["notes.txt", "model.safetensors", ".git", "sub"])
def test_files_of_a_user_are_never_removed(
    tiny: Path, engine: Path, refused: Refusal, name: str
) -> None:
    """Beside an engine or alone, and whatever the engine's contract says."""
    if name == "sub":
        (engine / name).mkdir()
        (engine / name / "file").write_text("keep")
    else:
        (engine / name).write_text("keep")
    assert f"it holds {name}, which no build wrote" in refused(tiny)
    (engine / CONTRACT_FILE).unlink()
    assert "which no build wrote" in refused(tiny)


@pytest.mark.parametrize("contract", ["", "[]", "{}", '{"format_version": 2}', '{"files": []}'])
def test_a_config_that_is_no_contract_marks_no_engine(
    tiny: Path, engine: Path, refused: Refusal, contract: str
) -> None:
    (engine / CONTRACT_FILE).write_text(contract)
    assert "which no build wrote" in refused(tiny)


def test_a_file_is_no_output(tiny: Path, tmp_path: Path, refused: Refusal) -> None:
    (tmp_path / "file").write_text("keep")
    assert "not an engine directory but a file" in refused(tiny, output=tmp_path / "file")
    (tmp_path / "out").write_text("keep")
    assert "File exists" in refused(tiny)


def test_a_link_in_a_circle_is_no_output_and_no_checkpoint(
    tiny: Path, tmp_path: Path, refused: Refusal
) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert "is a link in a circle" in refused(tiny, output=circle)
    assert "is not a directory" in refused(circle)
    assert "failed" in refused(tiny, output=circle / "engine")


def test_a_name_that_is_too_long_is_no_output(tiny: Path, tmp_path: Path, refused: Refusal) -> None:
    assert "File name too long" in refused(tiny, output=tmp_path / ("n" * 300))
    assert "File name too long" in refused(tiny, output=tmp_path / ("n" * 250))


def test_a_place_that_cannot_be_written_is_named(tiny: Path, refused: Refusal) -> None:
    message = refused(tiny, output=Path("/proc/engine"))
    assert "writing the engine to --output /proc/engine failed" in message


def test_an_empty_directory_and_an_older_engine_are_outputs(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for output in (engine, tmp_path / "empty", tmp_path / "absent"):
        check_output(output, tmp_path / "checkpoint")


def test_a_linked_output_is_replaced_where_it_lies(engine: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(engine)
    with building(link) as directory:
        assert directory.parent == engine.parent
        publish(directory, link, write(directory))
    assert link.is_symlink()
    assert load_contract(engine)
    assert leftovers(engine) == []


@pytest.mark.parametrize("atomic", [True, False])
def test_an_engine_is_replaced_by_name(
    engine: Path, atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one system call, or where there is none with two renames."""
    if not atomic:
        monkeypatch.setattr(exchange, "_exchange", lambda one, other: False)
    before = engine.stat().st_ino
    with building(engine) as directory:
        inode = directory.stat().st_ino
        publish(directory, engine, write(directory))
        assert directory.stat().st_ino == before
    assert engine.stat().st_ino == inode
    assert leftovers(engine) == []


def test_an_engine_that_is_replaced_is_never_gone(engine: Path) -> None:
    """A server that starts just then finds the old engine or the new one."""
    new = engine.with_name("new")
    shutil.copytree(engine, new)
    if not exchange._exchange(new, engine):
        pytest.skip("this file system cannot exchange two names")
    done = threading.Event()
    missing = []

    def look() -> None:
        while not done.is_set():
            if not (engine / CONTRACT_FILE).is_file():
                missing.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(300):
        exchange.replace_directory(new, engine)
    done.set()
    reader.join()
    assert not missing


def test_an_engine_that_cannot_be_replaced_stays(engine: Path, tmp_path: Path) -> None:
    before = engine.stat().st_ino
    with pytest.raises(OSError, match="No such file"):
        exchange.replace_directory(tmp_path / "out" / "gone", engine)
    assert engine.stat().st_ino == before
    assert load_contract(engine)
    assert leftovers(engine) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_names_the_room_and_keeps_the_old_engine(engine: Path, number: int) -> None:
    with pytest.raises(EngineError) as caught, building(engine, 5 << 20) as directory:
        (directory / "weights").write_bytes(b"half")
        raise OSError(number, os.strerror(number))
    assert os.strerror(number) in str(caught.value)
    assert "5 MiB or more are needed" in str(caught.value)
    assert "MiB are free" in str(caught.value)
    assert load_contract(engine)
    assert leftovers(engine) == []


def test_too_little_room_is_seen_before_anything_is_written(engine: Path) -> None:
    with pytest.raises(EngineError, match="No space left"), building(engine, 1 << 60):
        raise AssertionError("must not begin")
    assert leftovers(engine) == []


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """No file may grow beyond what the tokenizer needs, as under a quota."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)


@pytest.mark.parametrize("target", ["cpu", "onnx"])
def test_weights_that_do_not_fit_leave_the_old_engine(
    tiny: Path, engine: Path, refused: Refusal, no_large_files: None, target: str
) -> None:
    message = refused(tiny, "--target", target)
    assert "File too large" in message
    assert load_contract(engine)
    assert leftovers(engine) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("options", [(), ("--target", "onnx")])
def test_a_disk_that_is_too_small_is_left_as_it_was(
    tiny: Path, small_disk: Path, refused: Refusal, options: tuple[str, ...]
) -> None:
    message = refused(tiny, *options, output=small_disk / "new" / "engine")
    assert "No space left on device" in message
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_is_left_as_it_was(small_disk: Path) -> None:
    with (
        pytest.raises(EngineError, match="No space left"),
        building(small_disk / "engine") as directory,
    ):
        (directory / "weights").write_bytes(bytes(2 << 20))
    assert list(small_disk.iterdir()) == []


def test_a_mount_point_is_no_output(tiny: Path, small_disk: Path, refused: Refusal) -> None:
    """It could not be renamed when the engine is whole."""
    assert "is a mount point; name a directory below it" in refused(tiny, output=small_disk)


def test_another_builds_directory_is_left_alone(tmp_path: Path) -> None:
    """Two builds of one output at a time: neither takes the other's work for a leftover."""
    output = tmp_path / "engine"
    with building(output) as first:
        (first / "step.pt2").write_bytes(b"half")
        with building(output) as second:
            assert first != second
            publish(second, output, write(second))
        assert (first / "step.pt2").read_bytes() == b"half"
        publish(first, output, write(first))
    assert load_contract(output)
    assert leftovers(output) == []


def test_a_leftover_of_an_output_named_like_a_pattern_is_its_own(tmp_path: Path) -> None:
    other = tmp_path / ".engine-1.building-abc"
    own = tmp_path / ".engine[-]1.building-abc"
    other.mkdir()
    own.mkdir()
    with building(tmp_path / "engine[-]1"):
        assert other.exists()
        assert not own.exists()


def test_what_a_user_put_there_during_the_build_stays(engine: Path) -> None:
    with pytest.raises(EngineError, match=r"it holds notes\.txt"), building(engine) as directory:
        (engine / "notes.txt").write_text("keep")
        publish(directory, engine, write(directory))
    assert (engine / "notes.txt").read_text() == "keep"


def test_parents_made_for_a_failed_build_go_with_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), building(tmp_path / "a" / "b" / "engine"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
