"""The streamed weight file reads back as written, aligned, with two tensors in memory at most."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from build_engine.safetensors_file import Stored, write_safetensors


def stored(tensors: dict[str, Tensor]) -> list[Stored]:
    return [Stored(name, value.dtype, tuple(value.shape)) for name, value in tensors.items()]


def test_a_file_reads_back_as_written(tmp_path: Path) -> None:
    tensors = {
        "indices": torch.arange(3),
        "half a name/도": torch.randn(5, 7).t(),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "wide": torch.randn(3, 2).bfloat16(),
        "flags": torch.tensor([True, False]),
    }
    write_safetensors(tmp_path / "w", stored(tensors), tensors.values())
    found = load_file(str(tmp_path / "w"))
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name


def test_the_first_tensor_starts_at_a_cache_line(tmp_path: Path) -> None:
    for length in range(1, 70):
        tensors = {"n" * length: torch.ones(2)}
        write_safetensors(tmp_path / "w", stored(tensors), tensors.values())
        data = (tmp_path / "w").read_bytes()
        size = int.from_bytes(data[:8], "little")
        assert (8 + size) % 64 == 0
        assert json.loads(data[8 : 8 + size])


def test_a_weight_file_larger_than_memory_is_written(tmp_path: Path) -> None:
    """No more than the tensor being written and the one being made are alive at a time."""
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def values() -> Iterator[Tensor]:
        nonlocal most
        for n in range(8):
            value = torch.full((16,), float(n))
            alive.append(weakref.ref(value))
            most = max(most, sum(one() is not None for one in alive))
            yield value

    layout = [Stored(f"w{n}", torch.float32, (16,)) for n in range(8)]
    write_safetensors(tmp_path / "w", layout, values())
    assert most == 2
    assert load_file(str(tmp_path / "w"))["w7"].eq(7).all()


@pytest.mark.parametrize("shape", [(3,), (2, 1)])
def test_a_tensor_that_is_not_as_announced_is_this_projects_fault(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(AssertionError):
        write_safetensors(tmp_path / "w", [Stored("w", torch.float32, (2,))], [torch.ones(shape)])
