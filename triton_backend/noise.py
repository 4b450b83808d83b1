"""Random token ids of a canvas; a pure function of seed, position and step.

So a request's noise does not depend on who shares its executions, nor on how often it was asked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plugins.philox import key_of, philox4x32
from plugins.spec import Stream


def uniform_ids(
    seed: int, stream: Stream, positions: NDArray[np.int64], step: int, vocab_size: int
) -> NDArray[np.int64]:
    """One id per position, uniform over the vocabulary.

    The scaled 32-bit word favours no id by more than vocab_size / 2**32 of its probability.
    """
    counter = np.zeros((len(positions), 4), np.uint32)
    counter[:, 1] = positions
    counter[:, 2] = step
    counter[:, 3] = stream
    key = key_of(np.array(seed, np.uint64).astype(np.int64))
    words = philox4x32(key, counter)[:, 0].astype(np.uint64)
    return (words * np.uint64(vocab_size) >> np.uint64(32)).astype(np.int64)
