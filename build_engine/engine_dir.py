"""Writes an engine directory so that a half-written one never exists under its final name."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from build_engine.contract import CONTRACT_FILE, EngineContract
from build_engine.errors import EngineError


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(output: Path) -> None:
    """Delete what an earlier build that was killed left beside the output."""
    for path in output.parent.glob(f".{output.name}.building-*"):
        pid = path.name.rsplit("-", 2)[-2]
        if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def building(output: Path) -> Iterator[Path]:
    """A temporary directory beside `output`; removed unless `publish` renamed it.

    Raises:
        EngineError: the output exists and is not an engine, or the disk is full.
    """
    output = output.absolute()
    if output.exists() and (not output.is_dir() or not _replaceable(output)):
        raise EngineError(f"--output {output} exists and is not an engine directory.")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(output)
        prefix = f".{output.name}.building-{os.getpid()}-"
        temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=output.parent))
    except OSError as error:
        raise EngineError(f"--output {output}: {error.strerror or error}.") from error
    try:
        yield temporary
    except OSError as error:
        free = shutil.disk_usage(output.parent).free >> 20
        raise EngineError(
            f"writing the engine to {output} failed: {error.strerror or error} ({free} MiB free)."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replaceable(output: Path) -> bool:
    return (output / CONTRACT_FILE).is_file() or not any(output.iterdir())


def publish(temporary: Path, output: Path, contract: EngineContract) -> None:
    """Write the contract last, flush everything and rename to the final name."""
    output = output.absolute()
    (temporary / CONTRACT_FILE).write_text(contract.to_json(), encoding="utf-8")
    for path in temporary.iterdir():
        path.chmod(0o644)
        _fsync(path)
    temporary.chmod(0o755)
    _fsync(temporary)
    if output.exists():
        stale = Path(tempfile.mkdtemp(prefix=f".{output.name}.building-0-", dir=output.parent))
        output.rename(stale / "replaced")
        temporary.rename(output)
        shutil.rmtree(stale, ignore_errors=True)
    else:
        temporary.rename(output)
    _fsync(output.parent)
