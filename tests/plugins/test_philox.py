"""Philox against the vectors its authors publish, and what its callers rely on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from plugins import philox
from plugins.philox import key_of, philox4x32, uniform

ONES = 0xFFFFFFFF


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (" ".join(["ffffffff"] * 4), "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_published_known_answers(counter, key, expected):
    """kat_vectors of Random123, for philox4x32-10."""
    assert np.array_equal(philox4x32(words(key), words(counter)), words(expected))


def test_keys_and_counters_broadcast():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**32, (3, 1, 2), dtype=np.uint32)
    counters = rng.integers(0, 2**32, (5, 4), dtype=np.uint32)
    together = philox4x32(keys, counters)
    assert together.shape == (3, 5, 4)
    assert together.dtype == np.uint32
    assert np.array_equal(together[2, 4], philox4x32(keys[2, 0], counters[4]))


def test_a_seed_is_split_into_its_low_and_high_word():
    seeds = np.array([0, -1, 1 << 32, -(1 << 63), 5], np.int64)
    expected = [[0, 0], [ONES, ONES], [0, 1], [0, 1 << 31], [5, 0]]
    assert key_of(seeds).tolist() == expected


def test_uniforms_are_exact_and_inside_the_open_interval():
    assert uniform(np.array([0, 255, 256, ONES], np.uint32)).tolist() == [
        *[2.0**-25] * 2,
        3 * 2.0**-25,
        1 - 2.0**-25,
    ]


def test_torch_is_not_imported():
    """Serving code that decides runs without it."""
    root = Path(philox.__file__).parent.parent
    script = "import sys, plugins.philox; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)
