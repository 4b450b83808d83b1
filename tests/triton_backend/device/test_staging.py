"""Arrays come to the device as they are, and results come back whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from triton_backend.device.staging import ALIGNMENT, Gathering, Staging, aligned

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ARRAYS = {
    "ids": np.arange(5, dtype=np.int64),
    "none": np.empty(0, np.int64),
    "table": np.arange(12, dtype=np.int32).reshape(3, 4),
    "sliced": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


def test_arrays_arrive_whole_at_aligned_addresses(device: torch.device) -> None:
    staged = Staging(device).put(ARRAYS)
    start = staged["ids"].data_ptr()
    for name, array in ARRAYS.items():
        found = staged[name]
        assert np.array_equal(found.cpu().numpy(), array), name
        assert found.is_contiguous()
        assert (found.data_ptr() - start) % ALIGNMENT == 0 or not array.size


def test_the_same_sizes_have_the_same_addresses(device: torch.device) -> None:
    staging = Staging(device)
    first = {name: values.data_ptr() for name, values in staging.put(ARRAYS).items()}
    again = staging.put({name: array + 1 for name, array in ARRAYS.items()})
    assert {name: values.data_ptr() for name, values in again.items()} == first
    assert again["ids"].tolist() == [1, 2, 3, 4, 5]


def test_calls_are_gathered_without_their_padding(device: torch.device) -> None:
    """What a call returned may be overwritten by the next: nothing of it is kept."""
    gathering = Gathering(5, device, frozenset({"soft"}))
    rows = torch.arange(4, device=device)
    for start in (0, 4):
        outputs = {
            "argmax": rows + start,
            "soft": (rows + start)[:, None] * torch.ones(3).to(device),
        }
        gathering.add(outputs)
        torch.cuda.synchronize() if device.type == "cuda" else None
        for values in outputs.values():
            values.fill_(-1)
    found = gathering.arrays()
    assert found["argmax"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(found["argmax"], np.ndarray)
    assert found["soft"].tolist() == [[n] * 3 for n in range(5)]
    assert found["soft"].device.type == device.type


def test_a_tensor_between_addresses_is_copied() -> None:
    values = torch.arange(512, dtype=torch.int32)
    even = values[-values.data_ptr() % ALIGNMENT // 4 :]
    assert aligned(even) is even
    odd = even[1:65]
    assert aligned(odd).data_ptr() != odd.data_ptr()
    assert torch.equal(aligned(odd), odd)
