"""The kernels' random numbers, compiled alone: every word against NumPy's Philox and logarithm."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from plugins import library as kernels
from plugins.philox import key_of, philox4x32, uniform

SOURCE = """
#include "random.h"
extern "C" int lanes() { return dg::kLanes; }
extern "C" void minus_logs(const uint32_t* words, float* out, int64_t count) {
  for (int64_t i = 0; i < count; i += dg::kLanes) {
    dg::Words some;
    std::memcpy(&some, words + i, sizeof some);
    dg::store(out + i, dg::minus_log_uniform(some));
  }
}
// draws [lanes, 3], out [4, lanes]
extern "C" void words(const int64_t* draws, uint32_t block, uint32_t stream, uint32_t* out) {
  dg::RowDraws rows;
  for (int i = 0; i < dg::kLanes; ++i, draws += 3) rows.set(i, draws[0], draws[1], draws[2]);
  dg::Words found[4];
  rows.words(block, stream, found);
  std::memcpy(out, found, sizeof found);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("random")
    (directory / "random.cpp").write_text(SOURCE)
    include = Path(kernels.__file__).parent / "csrc"
    command = [*kernels.find_toolchain().command, *kernels._FLAGS, f"-I{include}", "-shared"]
    target = directory / "random.so"
    subprocess.run([*command, str(directory / "random.cpp"), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def test_minus_log_is_within_two_units_in_the_last_place_for_every_word(library):
    """All 2^24 numbers that a word can stand for; the lower byte plays no part."""
    words = (np.arange(1 << 24, dtype=np.uint32) << np.uint32(8)) + np.uint32(77)
    found = np.empty(len(words), np.float32)
    library.minus_logs(pointer(words), pointer(found), ctypes.c_int64(len(words)))
    exact = -np.log(uniform(words))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert (np.abs(found - exact) / unit).max() <= 2
    assert found.min() > 0


@pytest.mark.parametrize("block", [0, 1, 12345, (1 << 32) - 1])
@pytest.mark.parametrize("stream", [0, 1, 2])
def test_every_lane_has_its_own_counter(library, block, stream):
    lanes = library.lanes()
    rng = np.random.default_rng(block)
    draws = rng.integers(0, 1 << 32, (lanes, 3), dtype=np.int64)
    draws[:, 0] = rng.integers(-(1 << 63), 1 << 63, lanes, dtype=np.int64)
    draws[0], draws[1] = (-1, (1 << 32) - 1, (1 << 32) - 1), 0
    found = np.empty((4, lanes), np.uint32)
    library.words(pointer(draws), ctypes.c_uint32(block), ctypes.c_uint32(stream), pointer(found))
    counter = np.broadcast_arrays(np.int64(block), draws[:, 1], draws[:, 2], np.int64(stream))
    expected = philox4x32(key_of(draws[:, 0]), np.stack(counter, -1))
    assert np.array_equal(found.T, expected)
