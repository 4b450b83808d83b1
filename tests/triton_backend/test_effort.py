"""Aggregate load control: the golden vector, and that more load or less supply never helps."""

from hypothesis import given
from hypothesis import strategies as st

from triton_backend.effort import Claim, caps, demand, is_hopeless

EFFORTS = (0.9, 0.8, 0.7, 0.6, 0.5)
# DiLaServe's: N = 1000, B = 32, R = 10 recomputing steps, these many steps at each threshold.
GOLDEN = Claim(tuple(10 * 1000 + (steps - 10) * 32 for steps in (100, 85, 62, 50, 42)))


def efforts(supply, claims=(GOLDEN,) * 3):
    return [EFFORTS[n] for n in caps(claims, supply)]


def test_the_golden_vector():
    assert GOLDEN.demands == (12880, 12400, 11664, 11280, 11024)
    assert efforts(36_000) == [0.9, 0.7, 0.6]
    assert efforts(40_000) == [0.9] * 3
    assert efforts(30_000) == [0.5] * 3


def test_a_hopeless_request_gets_the_least_and_leaves_the_rest_to_others():
    assert efforts(36_000, (Claim(GOLDEN.demands, hopeless=True), GOLDEN, GOLDEN))[0] == 0.5
    assert is_hopeless(0.0, 0.01, 10)
    assert not is_hopeless(0.08, 0.01, 10)


def test_demand_counts_prompt_steps_and_commits():
    assert demand(left=100, steps=48, canvas=256, commits=1) == 100 + 49 * 256


claims = st.lists(
    st.lists(st.integers(1, 1000), min_size=5, max_size=5).map(
        lambda tokens: Claim(tuple(sorted(tokens, reverse=True)))
    ),
    max_size=8,
)


@given(claims, st.integers(0, 6000), st.integers(0, 1000))
def test_more_supply_never_lowers_the_first_cap(found, supply, more):
    less, greater = caps(found, supply), caps(found, supply + more)
    assert not found or greater[0] <= less[0]


@given(claims, claims, st.integers(0, 6000))
def test_more_load_behind_never_raises_a_cap(found, later, supply):
    alone = caps(found, supply)
    loaded = caps([*found, *later], supply)
    assert not found or loaded[0] >= alone[0]


@given(claims, st.integers(0, 6000))
def test_the_supply_is_kept_wherever_the_least_fits(found, supply):
    chosen = caps(found, supply)
    used = sum(claim.demands[n] for claim, n in zip(found, chosen, strict=True))
    least = sum(claim.demands[-1] for claim in found)
    assert used <= max(supply, least)
