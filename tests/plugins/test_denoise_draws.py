"""Candidates follow the distribution that they are drawn from, and nothing but their own draws."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plugins.spec import POSITION, SEED, STEP
from tests.plugins.denoise_cases import Case, make_case

# Odds that a right sampler fails one test, had its seeds not been fixed: one in a million.
FALSE_ALARM = 1e-6
ROWS = 20_000


def repeated(vocabulary: int, temperature: float, varied: int) -> Case:
    """One row many times over, whose draws differ in one field alone."""
    case = make_case(1, vocabulary, scale=2.0, temperatures=(temperature, temperature))
    draws = torch.tensor([[7, 11, 13]]).repeat(ROWS, 1)
    draws[:, varied] = torch.arange(ROWS)
    rows = case.rows([0] * ROWS)
    return replace(rows, draws=draws)


def chance(counts: Tensor, expected: Tensor) -> float:
    """Probability of a chi-square statistic at least this large; bins of under 20 are joined."""
    order = expected.argsort()
    group = (expected[order].cumsum(0) / 20).floor().long()
    bins = int(group.max()) + 1
    found, mean = torch.zeros(2, bins, dtype=torch.float64)
    found.index_add_(0, group, counts[order].double())
    mean.index_add_(0, group, expected[order].double())
    found, mean = found[mean > 0], mean[mean > 0]
    statistic = ((found - mean) ** 2 / mean).sum()
    freedom = torch.tensor((len(found) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


@pytest.mark.parametrize("varied", [SEED, POSITION, STEP])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 4.0])
@pytest.mark.parametrize("vocabulary", [3, 40, 3000])
def test_candidates_follow_the_softmax(vocabulary, temperature, varied):
    case = repeated(vocabulary, temperature, varied)
    counts = case.run()[1].bincount(minlength=vocabulary)
    expected = case.rows([0]).log_probs()[0].exp() * ROWS
    assert chance(counts, expected) > FALSE_ALARM


@pytest.mark.parametrize("varied", [SEED, POSITION, STEP])
def test_neighbouring_draws_are_independent(varied):
    """Catches a counter that shifts by one instead of starting anew."""
    vocabulary = 6
    case = repeated(vocabulary, 2.0, varied)
    drawn = case.run()[1].long()
    pairs = (drawn[::2] * vocabulary + drawn[1::2]).bincount(minlength=vocabulary**2)
    one = case.rows([0]).log_probs()[0].exp()
    assert chance(pairs, torch.outer(one, one).flatten() * ROWS / 2) > FALSE_ALARM


def test_a_wrong_distribution_is_noticed():
    """The test above has the power to fail: a temperature five percent off does not pass."""
    case = repeated(40, 1.0, STEP)
    counts = case.run()[1].bincount(minlength=40)
    wrong = replace(case.rows([0]), temperature=torch.tensor([1.05])).log_probs()[0].exp() * ROWS
    assert chance(counts, wrong) < FALSE_ALARM


def test_the_same_draws_give_the_same_candidate_wherever_they_stand():
    case = repeated(300, 1.0, STEP).rows(slice(0, 200))
    turned = case.rows(list(range(199, -1, -1)))
    assert torch.equal(turned.run()[1].flip(0), case.run()[1])
