"""Which way of serving comes before which, as the literature has it: only what is robust."""

from statistics import mean

import pytest

from triton_backend.policy import Policy, Prefill
from triton_backend.simulation.arrivals import WORKLOADS, synthetic
from triton_backend.simulation.experiments import llada
from triton_backend.simulation.setting import (
    DIFFUSION_GEMMA,
    H100_LLADA,
    LLADA,
    Fleet,
    Placement,
    Setting,
)
from triton_backend.simulation.simulator import simulate

SEEDS = (1, 2, 3)


def played(setting, workload, rate, count, seed):
    return simulate(setting, synthetic(WORKLOADS[workload], setting.model, rate, count, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_chunks_hold_canvases_up_for_one_budget_whole_prompts_for_longer_and_prompts_first_longest(
    seed,
):
    budget, fleet = 2048, Fleet(Placement.COLOCATED, 2)
    found = {
        prefill: played(
            Setting(DIFFUSION_GEMMA, fleet, Policy(prefill=prefill, token_budget=budget)),
            "arxiv", 3.2, 120, seed,
        )
        for prefill in Prefill
    }  # fmt: skip
    chunked = found[Prefill.CHUNKED]
    assert chunked.most_running * DIFFUSION_GEMMA.canvas <= budget, "canvases under way must fit"
    assert chunked.largest_gap <= H100_LLADA(budget) + 1e-9
    assert chunked.largest_gap < found[Prefill.DEFICIT].largest_gap
    assert found[Prefill.DEFICIT].largest_gap < found[Prefill.FIRST].largest_gap


@pytest.mark.parametrize("rate", [0.3, 0.75, 1.25, 1.8])
def test_a_hybrid_is_no_slower_on_average_than_a_disaggregated_fleet(rate):
    for seed in SEEDS:
        apart, hybrid = (
            played(llada(Fleet(placement, 1, 1), 1024), "sharegpt", rate, 60, seed).mean
            for placement in (Placement.DISAGGREGATED, Placement.HYBRID)
        )
        assert hybrid <= apart


@pytest.mark.slow
def test_near_saturation_the_best_tail_is_that_of_a_budget_in_the_middle():
    """A budget of 512 keeps sequences waiting, one of 16384 holds blocks up."""
    fleet = Fleet(Placement.COLOCATED, 8)
    tails = {
        budget: mean(played(llada(fleet, budget), "sharegpt", 6, 300, seed).p99 for seed in SEEDS)
        for budget in (512, 1024, 2048, 16384)
    }
    assert min(tails, key=tails.__getitem__) == 1024


def test_a_flat_floor_then_a_line_is_what_step_times_look_like():
    assert LLADA.cost.layers(1) == LLADA.cost.layers(128)
    assert H100_LLADA(4096) / H100_LLADA(2048) == pytest.approx(2, rel=0.05)
