"""What malloc keeps of freed memory goes back once it is much."""

from multiprocessing import get_context

import numpy as np

from triton_backend.memory import Growth, anonymous_bytes

MIB = 1 << 20


def leave_free(size: int) -> np.ndarray:
    """Frees pieces of the heap but the last, which keeps malloc from giving back the others."""
    pieces = [np.ones(64 << 10, np.uint8) for _ in range(size >> 16)]
    return pieces[-1]


def test_much_goes_back_and_little_stays() -> None:
    """In a process of its own: what earlier tests have left free would be used again first."""
    with get_context("spawn").Pool(1) as fresh:
        fresh.apply(much_goes_back_and_little_stays)


def much_goes_back_and_little_stays() -> None:
    growth = Growth(most=32 * MIB)
    before = anonymous_bytes()
    little = leave_free(24 * MIB)
    kept = anonymous_bytes()
    growth.bound()
    assert anonymous_bytes() >= kept > before
    much = leave_free(96 * MIB)
    assert anonymous_bytes() - before > 64 * MIB
    growth.bound()
    assert anonymous_bytes() - before < 24 * MIB
    del little, much


def test_what_is_in_use_is_given_back_only_once() -> None:
    """Memory that was taken to stay, such as another engine's, must not cost a trim every time."""
    growth = Growth(most=8 * MIB)
    trims = []
    growth._trim = trims.append
    stays = np.ones(32 * MIB, np.uint8)
    for _ in range(3):
        growth.bound()
    assert trims == [0]
    del stays
