"""Packing is a permutation with zero padding, and it comes back exactly."""

import pytest
import torch

from plugins.layout import pack_panels, unpack_panels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(32, 2), (1, 8), (33, 6), (96, 16), (3, 64, 8), (2, 3, 70, 4)])
def test_packing_round_trips_exactly(shape, dtype):
    weight = torch.randn(shape).to(dtype)
    packed = pack_panels(weight)
    assert packed.shape == (*shape[:-2], -(-shape[-2] // 32), shape[-1], 32)
    assert torch.equal(unpack_panels(packed, shape[-2]), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inner", [32, 5, 40])
def test_each_part_fills_whole_panels(inner, dtype):
    weight = torch.randn(3, 2 * inner, 8).to(dtype)
    packed = pack_panels(weight, parts=2)
    assert packed.shape == (3, 2 * -(-inner // 32), 8, 32)
    assert torch.equal(unpack_panels(packed, 2 * inner, parts=2), weight)
    halves = packed.chunk(2, dim=1)
    assert torch.equal(unpack_panels(halves[1], inner), weight[:, inner:])


def test_fp32_panels_hold_columns_side_by_side():
    weight = torch.randn(40, 3)
    packed = pack_panels(weight)
    assert torch.equal(packed[1, :, :8], weight[32:].T)
    assert not packed[1, :, 8:].any()


def test_bf16_panels_hold_neighbours_of_the_depth_together():
    weight = torch.randn(32, 4).bfloat16()
    pairs = pack_panels(weight).reshape(2, 32, 2)
    assert torch.equal(pairs[1, 7], weight[7, 2:])


def test_an_odd_bf16_depth_is_refused():
    with pytest.raises(ValueError, match="depth 3"):
        pack_panels(torch.zeros(32, 3, dtype=torch.bfloat16))


def test_uneven_parts_are_refused():
    with pytest.raises(ValueError, match="weight has 3 rows"):
        pack_panels(torch.zeros(3, 4), parts=2)
