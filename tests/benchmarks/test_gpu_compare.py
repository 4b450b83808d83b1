"""What distances say, and of what they must not be silent."""

import math

import pytest
import torch

from benchmarks.gpu_compare import BOUNDS, bound_of, distance, shortfall


def test_a_distance_is_relative_to_the_value_and_the_spread():
    truth = torch.tensor([3.0, 4.0])
    spread = math.sqrt(12.5)
    error = distance(truth + torch.tensor([0.0, 0.1]), truth)
    assert error == pytest.approx(0.1 / (4 + spread), rel=1e-5)
    assert distance(truth, truth) == 0


def test_a_row_far_from_zero_is_measured_by_its_own_spread():
    """Else the rounding of the first rows of a causal prompt would count for more than it is."""
    truth = torch.tensor([[3.0, 4.0, 0.0], *[[0.1, -0.1, 0.1]] * 50])
    found = truth.clone()
    found[0, 2] += 0.01
    assert distance(found, truth) == pytest.approx(0.01 / math.sqrt(25 / 3), rel=1e-5)
    found = truth.clone()
    found[9, 2] += 0.01
    overall = math.sqrt((25 + 50 * 0.03) / 153)
    assert distance(found, truth) == pytest.approx(0.01 / (0.1 + overall), rel=1e-5)


def test_a_distance_does_not_depend_on_the_scale():
    truth = torch.randn(50, generator=torch.Generator().manual_seed(0))
    found = truth + 0.01
    assert distance(1e6 * found, 1e6 * truth) == pytest.approx(distance(found, truth), rel=1e-3)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_infinitely_far_unless_the_truth_is_so_too(broken):
    truth = torch.ones(3)
    found = truth.clone()
    found[1] = broken
    assert distance(found, truth) == math.inf
    assert distance(truth, found) == math.inf
    assert distance(found, found) == 0


def test_other_shapes_are_infinitely_far_and_nothing_is_near():
    assert distance(torch.zeros(2), torch.zeros(3)) == math.inf
    assert distance(torch.zeros(0), torch.zeros(0)) == 0


def test_a_zero_truth_leaves_no_room():
    assert distance(torch.zeros(3), torch.zeros(3)) == 0
    assert distance(torch.full((3,), 1e-3), torch.zeros(3)) > 1


@pytest.mark.parametrize(("dtype", "steps"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_bounds_leave_a_few_roundings_and_no_more(dtype, steps):
    """Catches a bound so wide that a wrong kernel would pass."""
    truth = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert distance(truth.to(dtype), truth) < BOUNDS[dtype]
    assert steps < BOUNDS[dtype] < 10 * steps
    assert bound_of(dtype, interpreted=True) < 0.03


def test_the_shortfall_is_that_of_the_worst_row():
    scores = torch.tensor([[1.0, 3.0], [2.0, 2.5]])
    assert shortfall(scores, torch.tensor([1, 1])) == 0
    assert shortfall(scores, torch.tensor([1, 0])) == pytest.approx(0.5)
    assert shortfall(scores[:0], torch.tensor([], dtype=torch.int64)) == 0
