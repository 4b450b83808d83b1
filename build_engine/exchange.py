"""Puts a directory in the place of another so that its name always has one of the two."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def replace_directory(new: Path, old: Path) -> None:
    """Give `new` the name `old`; what had that name, if anything, is then called `new`.

    Raises:
        OSError: it cannot be renamed; what `old` was is unchanged.
    """
    if not old.exists():
        new.rename(old)
    elif not _exchange(new, old):
        _exchange_in_turn(new, old)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _exchange_in_turn(new: Path, old: Path) -> None:
    aside = new.with_name(f"{new.name}-replaced")
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    aside.rename(new)
