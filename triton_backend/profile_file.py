"""`profile.json` of an engine directory: how fast this engine is on this machine, as measured.

It lies beside the contract and is none of the engine's own files: it may be missing, and is of no
use on another machine or for another engine.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from build_engine.contract import (
    CONTRACT_FILE,
    PROFILE_FILE,
    EngineContract,
    file_sha256,
)
from build_engine.errors import EngineError
from triton_backend.cost_model import CostModel, Curve, prefers_swap
from triton_backend.kv_cache import Sequence

FORMAT_VERSION = 1
_CURVES = ("layers", "denoise", "read")


@dataclass(frozen=True)
class Profile:
    """What `make profile` found: `engine` is the SHA-256 of the contract it was measured with.

    `copy_bytes_per_second` of pages to host memory and back, None where it was not measured.
    """

    engine: str
    machine: str
    threads: int
    date: str
    cost: CostModel
    copy_bytes_per_second: float | None

    def save(self, directory: Path) -> Path:
        """Writes the file as a whole or not at all."""
        values = {
            "format_version": FORMAT_VERSION,
            "engine": self.engine,
            "machine": self.machine,
            "threads": self.threads,
            "date": self.date,
            "seconds_by_rows": {name: getattr(self.cost, name).points for name in _CURVES},
            "seconds_per_pair": self.cost.pair_seconds,
            "copy_bytes_per_second": self.copy_bytes_per_second,
        }
        path = directory / PROFILE_FILE
        handle, temporary = tempfile.mkstemp(prefix=f".{PROFILE_FILE}.", dir=directory)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(values, file, indent=1)
                file.write("\n")
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return path

    def swap_choice(self, contract: EngineContract, budget: int) -> Callable[[Sequence], bool]:
        """Whether a context is better copied to the host and back than computed again."""
        full, sliding = (contract.group_page_bytes(group) for group in (False, True))

        def prefers(sequence: Sequence) -> bool:
            held = len(sequence.full) * full
            held += (len(sequence.sliding) - sequence.first) * sliding
            anew = self.cost.prefill_seconds(sequence.computed, budget)
            return prefers_swap(held, self.copy_bytes_per_second, anew)

        return prefers


def engine_identity(directory: Path) -> str:
    """What a profile names its engine by: its contract holds the hashes of all its files."""
    return file_sha256(directory / CONTRACT_FILE)


def load_profile(directory: Path) -> Profile | None:
    """The engine's profile, or None if it has none.

    Raises:
        EngineError: the file is no profile, or one of another engine.
    """
    path = directory / PROFILE_FILE
    if not path.is_file():
        return None
    try:
        profile = _parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise EngineError(f"{path} is no profile ({why}); run `make profile` again.") from None
    if profile.engine != engine_identity(directory):
        raise EngineError(
            f"{path} was measured with another engine ({profile.engine[:12]}...); run "
            "`make profile` again."
        )
    return profile


def _parse(values: Any) -> Profile:
    """A profile from its JSON; a ValueError, KeyError or TypeError says what is wrong."""
    if not isinstance(values, dict) or values["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {FORMAT_VERSION} is needed")
    curves = {name: _curve(name, values["seconds_by_rows"][name]) for name in _CURVES}
    if not curves["layers"].points:
        raise ValueError("layers has no points")
    copying = values["copy_bytes_per_second"]
    return Profile(
        engine=_text(values, "engine"),
        machine=_text(values, "machine"),
        threads=int(_number(values["threads"], "threads")),
        date=_text(values, "date"),
        cost=CostModel(
            layers=curves["layers"],
            denoise=curves["denoise"],
            read=curves["read"],
            pair_seconds=_number(values["seconds_per_pair"], "seconds_per_pair"),
        ),
        copy_bytes_per_second=None if copying is None else _number(copying, "bytes_per_second"),
    )


def _curve(name: str, points: Any) -> Curve:
    if not isinstance(points, list) or any(len(point) != 2 for point in points):
        raise ValueError(f"{name} must be a list of rows and seconds")
    made = tuple((int(_number(n, name)), _number(seconds, name)) for n, seconds in points)
    for (rows, seconds), (more, later) in pairwise(made):
        if more <= rows or later < seconds:
            raise ValueError(f"{name} must rise, from {rows} rows to {more} it does not")
    return Curve(made)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, a number is needed")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}, a number from 0 on is needed")
    return float(value)


def _text(values: dict[str, Any], name: str) -> str:
    if not isinstance(values[name], str):
        raise ValueError(f"{name} is {values[name]!r}, a text is needed")
    return str(values[name])
