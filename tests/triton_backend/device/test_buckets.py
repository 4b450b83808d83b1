"""Sizes are rounded up to few, never beyond what the engine takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_backend.device.buckets import SMALLEST, bucket, calls


@given(st.data(), st.integers(1, 1 << 20))
def test_a_bucket_holds_the_size_and_wastes_at_most_half_of_it(data: st.DataObject, most: int):
    size = data.draw(st.integers(1, most))
    found = bucket(size, most)
    assert size <= found <= most
    assert found <= max(SMALLEST, size * 1.5)


def test_few_sizes_recur():
    """Two a doubling: what is compiled or captured for one serves its neighbours."""
    assert {bucket(size, 4096) for size in range(1, 4097)} == {
        *(4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536),
        *(2048, 3072, 4096),
    }


def test_the_engines_own_limit_is_a_size_too():
    assert {bucket(size, 37) for size in range(33, 38)} == {37}
    assert bucket(2, 2) == 2


def test_a_size_beyond_the_limit_is_a_fault_of_ours():
    with pytest.raises(AssertionError, match=r"38 is outside 1\.\.37"):
        bucket(38, 37)


@given(st.data(), st.integers(1, 512), st.integers(1, 4096))
def test_calls_hold_all_rows_within_both_limits(data: st.DataObject, per_call: int, most: int):
    count = data.draw(st.integers(0, most))
    found = calls(count, per_call, most)
    assert count <= sum(found) <= most
    assert all(0 < size <= per_call for size in found)
    assert sum(found[:-1]) < count or not found


def test_only_the_last_call_is_padded():
    assert calls(600, 256, 1024) == (256, 256, 96)
    assert calls(512, 256, 1024) == (256, 256)
    assert calls(0, 256, 1024) == ()
