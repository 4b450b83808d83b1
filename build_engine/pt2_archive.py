"""Rewrites a compiled package so that the same build gives the same bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

_SERIAL = ".data/serialization_id"


def make_reproducible(path: Path) -> None:
    """Drop generated sources, which name this machine's paths, and the random serial id."""
    with zipfile.ZipFile(path) as source:
        entries = {
            name: source.read(name) for name in source.namelist() if not name.endswith(".cpp")
        }
    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as target:
        for name, content in sorted(entries.items()):
            same = b"0" * len(content) if name.endswith(_SERIAL) else content
            target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), same)
    temporary.replace(path)
