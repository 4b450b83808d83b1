"""Memory-mapped reading of single-file and sharded safetensors checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from build_engine.contract import file_sha256
from build_engine.errors import EngineError
from build_engine.json_file import read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".pkl")

log = logging.getLogger(__name__)


def _files_from_index(directory: Path) -> dict[str, str]:
    weight_map = read_json(directory / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise EngineError(f"{directory / INDEX}: weight_map is missing or empty.")
    for name in weight_map.values():
        if not isinstance(name, str) or set(name) & set("/\\\0") or not _is_weights(name):
            raise EngineError(
                f"{directory / INDEX}: {name!r} is not a safetensors file name in this directory."
            )
    absent = sorted({name for name in weight_map.values() if not (directory / name).is_file()})
    if absent:
        raise EngineError(
            f"{directory}: the index is stale or the download incomplete: {absent[0]} "
            f"({len(absent)} of {len(set(weight_map.values()))} shards) not found; download it "
            f"again, or remove {INDEX} where one file holds the whole model."
        )
    return dict(weight_map)


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and not name.startswith(".")


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal, dtype and shape included."""
    return one.dtype == other.dtype and torch.equal(one, other)


class Checkpoint:
    """Names and lazily mapped tensors of one checkpoint directory.

    Files outside the index are never merged in; they are named in a warning.

    Raises:
        EngineError: no weights, a stale or contradictory index, or an unreadable file.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise EngineError(f"--checkpoint {self.directory} is not a directory.")
        self._stack = contextlib.ExitStack()
        self._handles: dict[str, Any] = {}
        self._where = self._locate()

    def _locate(self) -> dict[str, str]:
        names = sorted(path.name for path in self.directory.iterdir() if path.is_file())
        present = [name for name in names if _is_weights(name)]
        pickled = [name for name in names if name.endswith(_PICKLED)]
        if (self.directory / INDEX).is_file():
            where = _files_from_index(self.directory)
            self._check_index(where)
        elif present == [SINGLE] or SINGLE in present:
            where = dict.fromkeys(self._open(SINGLE).keys(), SINGLE)
        elif len(present) == 1:
            where = dict.fromkeys(self._open(present[0]).keys(), present[0])
        elif present:
            raise EngineError(
                f"{self.directory}: {len(present)} safetensors files but no {INDEX}; "
                "cannot tell which belong to the model."
            )
        else:
            found = f", and {pickled[0]} is never read: convert it" if pickled else ""
            raise EngineError(f"{self.directory}: no safetensors weights found{found}.")
        stray = sorted(set(present) - set(where.values())) + pickled
        if stray:
            log.warning("ignoring weight files outside the index: %s", ", ".join(stray))
        return where

    def _check_index(self, where: dict[str, str]) -> None:
        held: dict[str, list[str]] = {}
        for name in sorted(set(where.values())):
            for key in self._open(name).keys():
                held.setdefault(key, []).append(name)
        wrong = sorted(key for key, name in where.items() if name not in held.get(key, []))
        if wrong:
            raise EngineError(
                f"{self.directory}: the index is stale: {wrong[0]} is not in {where[wrong[0]]} "
                f"({len(wrong)} such tensors)."
            )
        missing = sorted(set(held) - set(where))
        if missing:
            raise EngineError(
                f"{self.directory}: the index is incomplete: it omits {missing[0]} "
                f"({len(missing)} such tensors)."
            )
        for key, names in held.items():
            self._refuse_conflict(key, names)

    def _refuse_conflict(self, key: str, names: list[str]) -> None:
        first = self._open(names[0]).get_tensor(key) if len(names) > 1 else None
        for other in names[1:]:
            if first is None or not same_values(first, self._open(other).get_tensor(key)):
                raise EngineError(
                    f"{self.directory}: {key} is in {names[0]} and {other} with different values."
                )

    def _open(self, name: str) -> Any:
        if name not in self._handles:
            try:
                handle = safe_open(str(self.directory / name), framework="pt", device="cpu")
                self._handles[name] = self._stack.enter_context(handle)
            except (SafetensorError, OSError) as error:
                raise EngineError(
                    f"{self.directory / name} is not a readable safetensors file: {error}."
                ) from error
        return self._handles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._where))

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def __len__(self) -> int:
        return len(self._where)

    def tensor(self, name: str) -> torch.Tensor:
        """The named tensor, mapped from disk."""
        tensor: torch.Tensor = self._open(self._where[name]).get_tensor(name)
        return tensor

    def file_of(self, name: str) -> Path:
        """The file that holds the named tensor."""
        return self.directory / self._where[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the named tensor, without reading it."""
        return tuple(self._open(self._where[name]).get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """Dtype of the named tensor by its safetensors name, without reading it."""
        return str(self._open(self._where[name]).get_slice(name).get_dtype())

    def identity(self) -> dict[str, Any]:
        """What tells this checkpoint from another: a digest over config and weight files."""
        files = ["config.json", *sorted(set(self._where.values()))]
        hashes = {name: file_sha256(self.directory / name) for name in files}
        digest = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
        return {"name": self.directory.resolve().name, "sha256": digest, "files": hashes}

    def close(self) -> None:
        """Unmap the files; tensors handed out stay valid while referenced."""
        self._stack.close()
        self._handles.clear()
