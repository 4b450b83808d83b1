"""What an engine process maps: weights as they lie in their file, pools that are there."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from build_engine.errors import EngineError
from triton_backend.mapped import map_weights, zeroed


def test_every_tensor_is_seen_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "table": torch.randn(5, 3),
        "halves": torch.randn(4, 2, 2).bfloat16(),
        "scalar": torch.tensor(7.0),
        "ids": torch.arange(6),
    }
    save_file(tensors, tmp_path / "weights", metadata={"format": "pt"})
    found = map_weights(tmp_path / "weights")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        seen = tensor.view(torch.uint16) if name == "halves" else tensor
        assert found[name].dtype == seen.numpy().dtype
        assert np.array_equal(found[name], seen.numpy())
        assert not found[name].flags.writeable


@pytest.mark.parametrize("content", [b"short", b"x" * 64, b"\x02" + bytes(7) + b"[]"])
def test_another_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "weights").write_bytes(content)
    with pytest.raises(EngineError, match="holds no weights .* rebuild the engine"):
        map_weights(tmp_path / "weights")


def test_a_file_that_was_cut_off_is_one_sentence(tmp_path: Path) -> None:
    save_file({"table": torch.ones(50, 3)}, tmp_path / "weights")
    (tmp_path / "weights").write_bytes((tmp_path / "weights").read_bytes()[:-1])
    with pytest.raises(EngineError, match="holds no weights"):
        map_weights(tmp_path / "weights")


def test_a_pool_starts_zeroed_and_can_be_written() -> None:
    pool = zeroed((3, 2, 4), np.dtype(np.uint16))
    assert (pool.shape, pool.dtype) == ((3, 2, 4), np.uint16)
    assert not pool.any()
    pool[1] = 9
    assert pool.sum() == 72


def test_a_pool_is_in_memory_before_its_first_use() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    pool = zeroed((64, 1 << 18), np.dtype(np.float32))
    assert resident() - before > 0.9 * pool.nbytes
