"""Writes an engine directory so that a half-written one never exists under its final name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from build_engine.contract import CONTRACT_FILE, PROFILE_FILE, EngineContract
from build_engine.errors import EngineError
from build_engine.exchange import replace_directory
from build_engine.json_file import read_json

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _real(path: Path) -> Path:
    """Where links lead; of a link in a circle, itself."""
    return Path(os.path.realpath(path))


def check_output(output: Path, checkpoint: Path) -> None:
    """Refuse an output that holds what a build did not write, or that lies in the checkpoint.

    Raises:
        EngineError: naming what is in the way.
    """
    output, checkpoint = _real(output), _real(checkpoint)
    if output == checkpoint or checkpoint in output.parents:
        raise EngineError(
            f"--output {output} is or lies in --checkpoint {checkpoint}; name a directory outside."
        )
    _check_replaceable(output)


def _check_replaceable(output: Path) -> None:
    if output.is_symlink():
        raise EngineError(f"--output {output} is a link in a circle; name a directory.")
    if not output.exists():
        return
    if not output.is_dir():
        raise EngineError(
            f"--output {output} exists and is not an engine directory but a file; name another."
        )
    if os.path.ismount(output):
        raise EngineError(f"--output {output} is a mount point; name a directory below it.")
    present = {path.name for path in output.iterdir()}
    foreign = sorted(present - _written(output))
    if foreign:
        raise EngineError(
            f"--output {output} exists and is not an engine directory alone: it holds "
            f"{foreign[0]}, which no build wrote; move that away or name another directory."
        )


def _written(output: Path) -> set[str]:
    """Names of the files of an engine, its profile among them; none where there is no engine."""
    try:
        contract = read_json(output / CONTRACT_FILE)
    except EngineError:
        return set()
    files = contract.get("files")
    if "format_version" not in contract or not isinstance(files, dict):
        return set()
    return {CONTRACT_FILE, PROFILE_FILE, *files}


def _lock(directory: Path) -> int:
    """A handle that marks a directory as in use for as long as this process lives.

    Raises:
        OSError: another process uses it, it is gone, or its file system has no locks.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _prefix(output: Path) -> str:
    return f".{output.name}.building-"


def _remove_leftovers(output: Path) -> None:
    """Delete what an earlier build that was killed left beside the output."""
    for path in output.parent.glob(f"{_escaped(_prefix(output))}*"):
        with contextlib.suppress(OSError):
            handle = _lock(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _escaped(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _make(output: Path) -> tuple[Path, int | None]:
    """A temporary directory and its lock, None where its file system has none."""
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=_prefix(output), dir=output.parent))
        try:
            return temporary, _lock(temporary)
        except (BlockingIOError, FileNotFoundError):
            continue  # Another build has just taken it for a leftover.
        except OSError:
            return temporary, None


@contextlib.contextmanager
def building(output: Path, needed: int = 0) -> Iterator[Path]:
    """A temporary directory beside `output`; removed unless `publish` renamed it.

    `needed` is about how many bytes the engine takes.

    Raises:
        EngineError: the output is not an engine alone, or the disk has no room for what is needed.
    """
    output = _real(output)
    _check_replaceable(output)
    created = [path for path in output.parents if not path.exists()]
    temporary, lock = None, None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(output)
        _check_room(output, needed)
        temporary, lock = _make(output)
        yield temporary
    except OSError as error:
        raise _cannot_write(output, needed, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        if not output.exists():
            for path in created:
                with contextlib.suppress(OSError):
                    path.rmdir()


def _check_room(output: Path, needed: int) -> None:
    if shutil.disk_usage(output.parent).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cannot_write(output: Path, needed: int, error: OSError) -> EngineError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = f" ({error.filename})" if error.filename else ""
    remedy = "name another --output"
    if error.errno in _FULL:
        free = shutil.disk_usage(output.parent).free >> 20
        remedy = f"{max(1, needed >> 20)} MiB or more are needed, {free} MiB are free; {remedy}"
    return EngineError(
        f"writing the engine to --output {output} failed: {reason}{where}; {remedy}."
    )


def publish(temporary: Path, output: Path, contract: EngineContract) -> None:
    """Write the contract last, flush everything and rename to the final name.

    Raises:
        EngineError: since the build began, the output came to hold what no build wrote.
    """
    output = _real(output)
    (temporary / CONTRACT_FILE).write_text(contract.to_json(), encoding="utf-8")
    for path in temporary.iterdir():
        path.chmod(0o644)
        _fsync(path)
    temporary.chmod(0o755)
    _fsync(temporary)
    _check_replaceable(output)
    replace_directory(temporary, output)
    _fsync(output.parent)
