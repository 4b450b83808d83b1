"""Rules of acceptance: published vectors, what every rule keeps to, and the oracle's own masks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
)

from triton_backend.accept import (
    ConfidenceFactor,
    ConfidenceThreshold,
    EntropyBound,
    Statistics,
)

ENTROPIES = [0.01, 0.02, 0.03, 0.05, 0.08, 0.2, 0.5]
CONFIDENCES = [0.99, 0.98, 0.95, 0.9, 0.85, 0.6, 0.3]
RULES = [EntropyBound(0.1), ConfidenceThreshold(0.9), ConfidenceFactor(1.0)]


def statistics(entropy=None, confidence=None, dtype=np.float64):
    """The statistic that is left out is NaN: no rule may look at both."""
    unknown = np.full(len(confidence if entropy is None else entropy), np.nan)
    return Statistics(
        (unknown if entropy is None else np.array(entropy)).astype(dtype),
        (unknown if confidence is None else np.array(confidence)).astype(dtype),
    )


def count(rule, **given):
    return int(rule.accept(statistics(**given)).sum())


@pytest.mark.parametrize(("bound", "accepted"), [(1e-4, 1), (0.05, 3), (0.1, 4), (0.2, 6), (1, 7)])
def test_entropy_bound_leaves_out_the_largest_of_the_sum(bound, accepted):
    """A sum with the largest in it, below the bound, would accept 0, 2, 3, 5, 7."""
    assert count(EntropyBound(bound), entropy=ENTROPIES) == accepted


@pytest.mark.parametrize(("threshold", "accepted"), [(0.9, 4), (0.95, 3), (0.999, 1)])
def test_threshold_takes_every_confident_candidate_and_always_one(threshold, accepted):
    assert count(ConfidenceThreshold(threshold), confidence=CONFIDENCES) == accepted


@pytest.mark.parametrize(("factor", "accepted"), [(0.5, 4), (1, 5), (1.5, 5)])
def test_factor_asks_more_of_each_further_candidate(factor, accepted):
    assert count(ConfidenceFactor(factor), confidence=CONFIDENCES) == accepted


def test_factor_does_not_accept_the_last_candidate_when_it_alone_fails():
    assert count(ConfidenceFactor(1), confidence=[0.99, 0.98, 0.1]) == 2


reals = st.lists(st.floats(0, 12, width=32), min_size=1, max_size=40)
shares = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40)


@given(reals, st.floats(0, 20), st.floats(0, 20))
def test_a_larger_entropy_bound_never_accepts_fewer(entropy, one, other):
    low, high = sorted((one, other))
    asked = statistics(entropy=entropy, dtype=np.float32)
    fewer, more = EntropyBound(low).accept(asked), EntropyBound(high).accept(asked)
    assert 1 <= fewer.sum() <= more.sum()
    assert not (fewer & ~more).any()


@given(shares, st.floats(0, 1), st.floats(0, 1))
def test_a_lower_threshold_or_a_larger_factor_never_accepts_fewer(confidence, one, other):
    low, high = sorted((one, other))
    asked = statistics(confidence=confidence, dtype=np.float32)
    for strict, lax in (
        (ConfidenceThreshold(high), ConfidenceThreshold(low)),
        (ConfidenceFactor(low), ConfidenceFactor(high)),
    ):
        fewer, more = strict.accept(asked), lax.accept(asked)
        assert 1 <= fewer.sum() <= more.sum()
        assert not (fewer & ~more).any()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40, unique=True), data=st.data()
)
def test_positions_in_another_order_are_accepted_in_that_order(rule, values, data):
    order = data.draw(st.permutations(range(len(values))))
    numbers = np.array(values, np.float32)
    mask = rule.accept(Statistics(numbers, numbers))
    assert np.array_equal(rule.accept(Statistics(numbers[order], numbers[order])), mask[order])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_statistics_are_left_as_they_were(rule):
    entropy, confidence = np.array(ENTROPIES), np.array(CONFIDENCES)
    rule.accept(Statistics(entropy, confidence))
    assert entropy.tolist() == ENTROPIES
    assert confidence.tolist() == CONFIDENCES


@pytest.mark.parametrize("bound", [0.0, 1e-6, 0.1])
def test_positions_without_entropy_are_always_accepted_and_one_more(bound):
    mask = EntropyBound(bound).accept(statistics(entropy=[5.0, 0.0, 3.0, 0.0]))
    assert mask.tolist() == [False, True, True, True]


def oracle(logits, bound):
    """Transformers' mask, and the entropies that it takes it from."""
    config = EntropyBoundSamplerConfig(entropy_bound=bound)
    sampler = EntropyBoundSampler(config, logits.shape[1], logits.shape[2], 48)
    canvas = torch.zeros(logits.shape[:2], dtype=torch.long)
    sampler.accept_canvas(canvas, canvas, logits, 1)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    return sampler.accepted_token_mask[0].numpy(), entropy[0].numpy()


def assert_equal_masks(logits, bound):
    """Of positions whose entropy is the same to the last bit torch's sort may take any."""
    expected, entropy = oracle(logits, bound)
    found = EntropyBound(bound).accept(Statistics(entropy, np.ones_like(entropy)))
    assert np.array_equal(np.sort(entropy[found]), np.sort(entropy[expected]))
    if len(np.unique(entropy)) == len(entropy):
        assert np.array_equal(found, expected)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 256),
    spread=st.sampled_from([0.01, 1.0, 5.0, 20.0]),
    bound=st.sampled_from([1e-6, 0.005, 0.1, 1.0, 50.0]),
)
def test_entropy_bound_equals_transformers_on_any_logits(seed, width, spread, bound):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn((1, width, 50), generator=random) * spread
    assert_equal_masks(logits, bound)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(2, 256), data=st.data())
def test_entropy_bound_equals_transformers_where_the_sum_meets_the_bound(seed, width, data):
    """The bound is a sum that occurs, or a neighbour of it: here the rounding of sums decides."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn((1, width, 50), generator=random) * 4
    entropy = torch.distributions.Categorical(logits=logits).entropy()[0].sort().values
    before = (entropy.cumsum(0) - entropy)[data.draw(st.integers(1, width - 1))].item()
    towards = data.draw(st.sampled_from([0, before, np.inf]))
    bound = float(np.nextafter(np.float32(before), np.float32(towards)))
    assert_equal_masks(logits, bound)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), hot=st.sets(st.integers(0, 15), min_size=1))
def test_a_one_hot_row_is_always_accepted(seed, hot):
    logits = torch.randn((1, 16, 50), generator=torch.Generator().manual_seed(seed))
    for row in hot:
        logits[0, row] = torch.where(torch.arange(50) == row, 0, -torch.inf)
    logits = logits.clamp(min=torch.finfo(torch.float32).min)
    _, entropy = oracle(logits, 0.1)
    assert EntropyBound(0.0).accept(Statistics(entropy, entropy))[list(hot)].all()
