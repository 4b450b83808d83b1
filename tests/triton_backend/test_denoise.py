"""One denoising step against transformers: temperature, acceptance, noise, the stop rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    LinearTemperatureScheduleLogitsProcessor,
    StableAndConfidentStoppingCriteria,
)

from plugins.spec import Stream
from triton_backend.accept import ConfidenceThreshold, EntropyBound
from triton_backend.denoise import Denoising, new_canvas, step
from triton_backend.noise import uniform_ids
from triton_backend.runner import DenoiseOutput

VOCAB = 1000
WIDTH = 8
POSITIONS = np.arange(20, 20 + WIDTH)
SETTINGS = Denoising(
    seed=5, max_steps=48, t_min=0.4, t_max=0.8, rule=EntropyBound(0.1), stability_threshold=1,
    confidence_threshold=0.005,
)  # fmt: skip
X, Y = np.arange(WIDTH), np.arange(WIDTH) + 100


def output(argmax=X, entropy=0.0, candidate=None, candidate_log_prob=-0.5):
    """The head's rows: `entropy` and `candidate_log_prob` are one number or one for each."""

    def row(values):
        return np.broadcast_to(np.float32(values), WIDTH).copy()

    argmax = np.array(argmax, np.int32)
    return DenoiseOutput(
        argmax=argmax,
        candidate=argmax + 500 if candidate is None else np.array(candidate, np.int32),
        entropy=row(entropy),
        log_prob=row(-0.25),
        candidate_log_prob=row(candidate_log_prob),
        soft=object(),
    )


def canvas(denoising=SETTINGS, given=(), pinned=()):
    return new_canvas(denoising, POSITIONS, VOCAB, given, pinned)


def steps(outputs, denoising=SETTINGS, **made):
    """Every state from the first on, until it is finished or there is no output left."""
    states = [canvas(denoising, **made)]
    for each in outputs:
        states.append(step(states[-1], each, denoising, POSITIONS, VOCAB))
        if states[-1].finished:
            break
    return states


class Logits:
    """Stands for logits: dividing them gives the divisor."""

    def __truediv__(self, temperature):
        return temperature


@given(low=st.floats(0, 5), span=st.floats(0, 5), most=st.integers(1, 1024), data=st.data())
def test_temperature_is_that_of_transformers_to_the_last_bit(low, span, most, data):
    at = data.draw(st.integers(0, most - 1))
    denoising = replace(SETTINGS, t_min=low, t_max=low + span, max_steps=most)
    schedule = LinearTemperatureScheduleLogitsProcessor(low, low + span, most)
    expected = schedule(None, Logits(), torch.tensor(most - at, dtype=torch.int32))
    found = denoising.temperature(at)
    assert isinstance(found, np.float32)
    assert found == expected.numpy()


def test_temperature_goes_from_the_highest_to_one_step_above_the_lowest():
    found = [SETTINGS.temperature(at) for at in (0, 47)]
    assert found == pytest.approx([0.8, 0.4 + 0.4 / 48])


@settings(deadline=None, max_examples=60)
@given(
    threshold=st.sampled_from([0, 1, 2, 3]),
    canvases=st.lists(st.tuples(st.sampled_from([X, Y]), st.booleans()), min_size=1, max_size=12),
)
def test_the_stop_rule_is_that_of_transformers_step_for_step(threshold, canvases):
    """Rows of logits are all or nearly one-hot, so entropies are zero or far from the bound."""
    criteria = StableAndConfidentStoppingCriteria(threshold, 0.005)
    denoising = replace(SETTINGS, stability_threshold=threshold)
    state = canvas(denoising)
    for argmax, confident in canvases:
        logits = torch.nn.functional.one_hot(torch.tensor(argmax), 200).float()[None]
        logits *= 100 if confident else 1
        entropy = torch.distributions.Categorical(logits=logits).entropy()[0].numpy()
        expected = bool(criteria(torch.tensor(argmax)[None], logits))
        state = step(state, output(argmax, entropy), denoising, POSITIONS, VOCAB)
        assert state.finished == expected


@pytest.mark.parametrize(("threshold", "stops"), [(0, 1), (1, 3), (2, 4)])
def test_a_threshold_of_k_means_k_plus_one_equal_canvases(threshold, stops):
    """An engine that took k for the window's size stopped on the first noisy canvas."""
    states = steps(
        [output(c) for c in (X, Y, Y, Y)], replace(SETTINGS, stability_threshold=threshold)
    )
    assert (states[-1].finished, states[-1].steps) == (True, stops)


@pytest.mark.parametrize("threshold", [0, 1, 3])
def test_the_last_step_finishes_whatever_it_says(threshold):
    denoising = replace(SETTINGS, max_steps=3, stability_threshold=threshold)
    states = steps([output(c, entropy=4.0) for c in (X, Y, X, Y)], denoising)
    assert [state.finished for state in states] == [False, False, False, True]


def test_the_mean_entropy_must_be_below_the_threshold_not_at_it():
    denoising = replace(SETTINGS, stability_threshold=0, confidence_threshold=0.25)
    below = np.nextafter(np.float32(0.25), np.float32(0))
    assert not steps([output(entropy=0.25)], denoising)[-1].finished
    assert steps([output(entropy=below)], denoising)[-1].finished


def test_accepted_positions_take_the_candidate_and_others_fresh_ids():
    entropy = [0.01, 9, 0.02, 9, 9, 0.03, 9, 0.5]
    state = steps([output(entropy=entropy)])[-1]
    fresh = uniform_ids(5, Stream.RENOISE, POSITIONS, 0, VOCAB)
    kept = np.isin(np.arange(WIDTH), [0, 2, 5, 7])
    assert np.array_equal(state.ids, np.where(kept, X + 500, fresh))
    assert np.array_equal(state.argmax, X)


def test_the_rule_is_the_one_asked_for():
    confident = np.log([0.95, 0.2, 0.91, 0.89, 0.1, 0.1, 0.1, 0.1])
    denoising = replace(SETTINGS, rule=ConfidenceThreshold(0.9))
    state = steps([output(candidate_log_prob=confident, entropy=3.0)], denoising)[-1]
    assert np.flatnonzero(state.ids == X + 500).tolist() == [0, 2]


def test_acceptance_is_not_sticky():
    first = [0.2, *[9.0] * 7]
    states = steps([output(entropy=first), output(entropy=first[::-1])])
    assert states[1].ids[0] == X[0] + 500
    assert states[2].ids[0] != X[0] + 500
    assert states[2].ids[-1] == X[-1] + 500


def test_rejected_positions_get_other_ids_at_each_step_and_by_each_seed():
    uncertain = [output(entropy=[0.2, *[9.0] * 7])] * 3
    noise = [state.ids[1:] for state in steps(uncertain)]
    noise += [state.ids[1:] for state in steps(uncertain, replace(SETTINGS, seed=6))]
    for one in range(len(noise)):
        for other in range(one):
            assert (noise[one] == noise[other]).sum() <= 1


def test_the_same_seed_writes_the_same_canvases():
    uncertain = [output(entropy=[0.2, *[9.0] * 7])] * 3
    for one, other in zip(steps(uncertain), steps(uncertain), strict=True):
        assert np.array_equal(one.ids, other.ids)


@pytest.mark.parametrize("count", [0, 1, WIDTH - 1, WIDTH])
def test_a_new_canvas_has_the_given_ids_and_noise_behind_them(count):
    noise = canvas()
    started = canvas(given=tuple(range(count)))
    assert started.ids[:count].tolist() == list(range(count))
    assert np.array_equal(started.ids[count:], noise.ids[count:])
    assert (started.steps, started.finished, started.soft) == (0, False, None)
    assert not np.array_equal(noise.ids, canvas(replace(SETTINGS, seed=6)).ids)


PINNED = {"given": (7, 8, 9), "pinned": (0, 2)}


def test_pinned_positions_keep_their_token_in_the_canvas_and_in_what_is_committed():
    for state in steps([output(Y, entropy=9.0)] * 3, **PINNED)[1:]:
        assert state.ids[[0, 2]].tolist() == [7, 9]
        assert state.argmax[[0, 2]].tolist() == [7, 9]
        assert np.array_equal(state.argmax[3:], Y[3:])
    assert state.argmax[1] == Y[1]


def test_acceptance_does_not_look_at_pinned_positions():
    """Their entropies would fill the bound, or theirs would be the one that is always accepted."""
    for entropy in (0.0, 0.09, 50.0):
        values = np.array([entropy, 2, entropy, 1, 5, 6, 7, 8], np.float32)
        state = steps([output(entropy=values)], **PINNED)[-1]
        assert np.flatnonzero(state.ids == X + 500).tolist() == [3]


def test_the_stop_rule_does_not_look_at_pinned_positions():
    entropy = np.array([50, 0, 50, *[0] * 5], np.float32)
    moving = [np.where(np.isin(X, [0, 2]), n, X) for n in (10, 20)]
    states = steps([output(argmax, entropy) for argmax in moving], **PINNED)
    assert (states[-1].finished, states[-1].steps) == (True, 2)


def test_a_low_entropy_of_pinned_positions_does_not_stop_it():
    entropy = np.array([0, 0.04, 0, *[0] * 5], np.float32)
    denoising = replace(SETTINGS, stability_threshold=0, confidence_threshold=0.006)
    assert steps([output(entropy=entropy)], denoising)[-1].finished
    assert not steps([output(entropy=entropy)], denoising, **PINNED)[-1].finished


def test_greedy_takes_the_most_likely_token_and_its_probability():
    denoising = replace(SETTINGS, greedy=True, rule=ConfidenceThreshold(0.7))
    state = steps([output(candidate_log_prob=-9.0)], denoising)[-1]
    assert np.array_equal(state.ids, X)  # exp(-0.25) is 0.78


def test_a_state_carries_what_the_step_said():
    said = output(Y, entropy=0.5)
    state = steps([said])[-1]
    assert state.steps == 1
    assert state.soft is said.soft
    assert np.array_equal(state.log_probs, said.log_prob)
    assert np.array_equal(state.entropy, said.entropy)


def test_nothing_given_is_changed_in_place():
    state, said = canvas(**PINNED), output(Y, entropy=[0.0, *[9.0] * 7])
    arrays = [state.ids, state.pinned, said.argmax, said.candidate, said.entropy]
    arrays += [said.log_prob, said.candidate_log_prob, POSITIONS]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    try:
        after = step(state, said, SETTINGS, POSITIONS, VOCAB)
    finally:
        POSITIONS.flags.writeable = True
    assert all(np.array_equal(*pair) for pair in zip(arrays, before, strict=True))
    assert after.ids is not state.ids
