"""Noise is a function of seed, stream, position and step alone, and uniform over the vocabulary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.spec import Stream
from triton_backend.noise import uniform_ids

VOCAB = 262_144
POSITIONS = np.arange(1000, 1256)

seeds = st.integers(0, 2**64 - 1)
steps = st.integers(0, 1023)
streams = st.sampled_from(list(Stream))


def ids(seed=7, stream=Stream.RENOISE, positions=POSITIONS, step=3, vocab=VOCAB):
    return uniform_ids(seed, stream, positions, step, vocab)


@given(seeds, streams, st.lists(st.integers(0, 2**20), min_size=1, max_size=30), steps)
def test_an_id_is_the_same_whatever_else_is_asked_with_it(seed, stream, positions, step):
    together = ids(seed, stream, np.array(positions), step)
    for position, found in zip(positions, together, strict=True):
        assert ids(seed, stream, np.array([position]), step) == found


@given(seeds, steps)
def test_another_seed_stream_or_step_gives_other_ids(seed, step):
    base = ids(seed, step=step)
    others = [
        ids(seed ^ 1, step=step),
        ids(seed ^ 1 << 40, step=step),
        ids(seed, step=step + 1),
        ids(seed, stream=Stream.CANVAS, step=step),
        ids(seed, positions=POSITIONS + 256, step=step),
    ]
    for other in others:
        assert (base == other).sum() <= 2


@pytest.mark.parametrize("bit", [0, 31, 32, 33, 63])
def test_every_bit_of_a_seed_counts(bit):
    assert not np.array_equal(ids(seed=0), ids(seed=1 << bit))


@given(seeds, st.integers(1, 2**20))
def test_ids_are_within_the_vocabulary(seed, vocab):
    found = ids(seed, vocab=vocab)
    assert found.dtype == np.int64
    assert found.min() >= 0
    assert found.max() < vocab


def test_no_position_gives_no_id():
    assert ids(positions=np.arange(0)).shape == (0,)


@pytest.mark.parametrize("vocab", [2, 97, 1000])
def test_ids_are_uniform(vocab):
    """Chi-square over many steps; five standard deviations are allowed on either side."""
    drawn = np.concatenate([ids(step=step, vocab=vocab) for step in range(400)])
    expected = len(drawn) / vocab
    chi_square = ((np.bincount(drawn, minlength=vocab) - expected) ** 2 / expected).sum()
    assert abs(chi_square - (vocab - 1)) < 5 * np.sqrt(2 * (vocab - 1))


def test_neighbouring_positions_and_steps_are_unrelated():
    drawn = np.stack([ids(step=step) for step in range(400)]) / VOCAB - 0.5
    variance = (drawn**2).mean()
    for one, other in ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:])):
        assert abs((one * other).mean() / variance) < 5 / np.sqrt(one.size)
