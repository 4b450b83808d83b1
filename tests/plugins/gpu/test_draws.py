"""The GPU's random numbers, interpreted: every word is that of plugins.philox."""

import numpy as np
import pytest
import torch

from plugins.philox import key_of, philox4x32, uniform
from plugins.spec import Stream

PROBES = "tests.plugins.gpu.probes"


@pytest.mark.parametrize("first", [0, 12_345, (1 << 24) - 8])
def test_words_are_those_of_philox_bit_by_bit(interpreter, first):
    rng = np.random.default_rng(first)
    draws = rng.integers(0, 1 << 32, (8, 3), dtype=np.int64)
    draws[:, 0] = rng.integers(-(1 << 63), 1 << 63, 8, dtype=np.int64)
    draws[0], draws[1] = (-1, (1 << 32) - 1, (1 << 32) - 1), 0
    found = interpreter.run(f"{PROBES}.words", torch.from_numpy(draws), 8, first)
    seed, position, step = draws.T[..., None]
    counter = np.broadcast_arrays(first + np.arange(8), position, step, np.int64(Stream.CANDIDATE))
    expected = philox4x32(key_of(seed), np.stack(counter, -1)).reshape(8, 32)
    assert np.array_equal(found.numpy().view(np.uint32), expected)


def test_minus_log_is_within_three_units_in_the_last_place(interpreter):
    """Both ends, both sides of one half, and words all over."""
    edges = np.array([0, 255, 256, 0x7FFFFF00, 0x80000000, 0xFFFFFE00, 0xFFFFFFFF], np.uint32)
    rng = np.random.default_rng(0)
    many = rng.integers(0, 1 << 32, (1 << 16) - len(edges), dtype=np.uint32)
    words = np.concatenate([edges, many])
    found = interpreter.run(f"{PROBES}.minus_logs", torch.from_numpy(words.view(np.int32))).numpy()
    exact = -np.log(uniform(words))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert (np.abs(found - exact) / unit).max() <= 3
    assert found.min() > 0
