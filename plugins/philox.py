"""Philox4x32-10 counter-based random words on NumPy arrays; imports no torch and knows no stream.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_ROUNDS = 10


def philox4x32(key: NDArray[np.uint32], counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Four words [..., 4] of keys [..., 2] and counters [..., 4], which broadcast."""
    key, counter = np.asarray(key, np.uint32), np.asarray(counter, np.uint32)
    first, second = key[..., 0], key[..., 1]
    words = [counter[..., i] for i in range(4)]
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            even_high, even_low = _product(words[0], _MULTIPLIERS[0])
            odd_high, odd_low = _product(words[2], _MULTIPLIERS[1])
            words = [odd_high ^ words[1] ^ first, odd_low, even_high ^ words[3] ^ second, even_low]
            first, second = first + _KEY_STEPS[0], second + _KEY_STEPS[1]
    return np.stack(np.broadcast_arrays(*words), axis=-1)


def key_of(seeds: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Keys [..., 2] of any 64-bit seeds [...]: their low and high words."""
    bits = np.asarray(seeds, np.int64).astype(np.uint64)
    return np.stack([bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)], -1).astype(np.uint32)


def uniform(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Numbers within (0, 1) of the upper 24 bits of each word; exact, never 0 or 1."""
    return ((np.asarray(words, np.uint32) >> np.uint32(8)) + 0.5) * 2.0**-24


def _product(words: NDArray[np.uint32], factor: int) -> tuple[NDArray[np.uint32], ...]:
    wide = words.astype(np.uint64) * np.uint64(factor)
    return (wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)
