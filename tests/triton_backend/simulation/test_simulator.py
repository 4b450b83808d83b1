"""The simulator: times that can be worked out by hand, every request answered, every page back."""

import tracemalloc
from dataclasses import replace

import pytest

from triton_backend.cost_model import CostModel, Curve
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import KvShape
from triton_backend.policy import Policy, Prefill
from triton_backend.simulation.arrivals import WORKLOADS, Arrival, synthetic
from triton_backend.simulation.setting import (
    DIFFUSION_GEMMA,
    LLADA,
    Fleet,
    Model,
    Placement,
    Setting,
)
from triton_backend.simulation.simulator import Simulator, simulate

MILLISECOND = CostModel(Curve(((1, 0.001), (100_000, 100.0))))
"""A row takes a millisecond, so that latencies count rows."""

SMALL = Model(
    name="small", cost=MILLISECOND, canvas=16, limits=StepLimits(64, 32, 64, 512),
    kv=KvShape(8, 32, 96, 96), full_bytes=100, sliding_bytes=1000, mean_steps=4, least_steps=1,
    most_steps=8, recomputes=False, source="none",
)  # fmt: skip
ONE = Fleet(Placement.COLOCATED, 1)
APART = Fleet(Placement.DISAGGREGATED, 2, 1)
BOTH = Fleet(Placement.HYBRID, 2, 1)
BLOCKS = replace(SMALL, recomputes=True, kv=KvShape(8, 0, 96, 96))


def setting(model=SMALL, fleet=ONE, **changes):
    policy = Policy(check=True, **changes.pop("policy", {}))
    return Setting(model, fleet, policy, **changes)


def latencies(chosen, *arrivals):
    simulator = Simulator(chosen, arrivals)
    simulator.run()
    return list(simulator.latencies.total)


def test_a_lone_generation_takes_its_prompt_its_steps_and_its_commits():
    prompt, steps = 20, (3, 2)
    # The prompt goes with the first step, the commit of a canvas with the next one's first.
    rows = (prompt + 16) + 2 * 16 + (16 + 16) + 16
    assert latencies(setting(), Arrival(5.0, prompt, steps)) == pytest.approx([rows / 1000])


def test_a_long_prompt_takes_its_chunks():
    assert latencies(setting(), Arrival(0.0, 150, (1,))) == pytest.approx([(150 + 16) / 1000])


def test_canvases_of_a_read_run_side_by_side():
    found = latencies(setting(), Arrival(0.0, 10, (1, 1, 1), is_read=True))
    assert found == pytest.approx([(10 + 3 * 16) / 1000])


def test_every_block_of_a_model_that_recomputes_is_a_pass_over_the_whole_sequence():
    policy = {"prefill": Prefill.DEFICIT, "fusion": False}
    found = latencies(setting(BLOCKS, policy=policy), Arrival(0.0, 10, (2, 3)))
    assert found == pytest.approx([(2 * (10 + 32) + (2 + 3) * 16) / 1000])


def test_a_request_waits_for_the_execution_under_way():
    found = latencies(setting(), Arrival(0.0, 40, (1,)), Arrival(0.001, 40, (1,)))
    assert found == pytest.approx([0.056, 0.111])


@pytest.mark.parametrize("placement", [Placement.DISAGGREGATED, Placement.HYBRID])
def test_a_handed_over_context_takes_its_prompt_the_link_and_its_steps(placement):
    fleet = Fleet(placement, 1, 1)
    chosen = setting(fleet=fleet, link=1e6, prefill_budget=64)
    moved = 50 * 100 + 31 * 1000
    seconds = 0.050 + moved / 1e6 + 3 * 0.016
    assert latencies(chosen, Arrival(0.0, 50, (3,))) == pytest.approx([seconds])


def test_two_workers_share_what_comes_at_once():
    both = setting(fleet=Fleet(Placement.COLOCATED, 2))
    assert latencies(both, *[Arrival(0.0, 40, (1,))] * 2) == pytest.approx([0.056] * 2)


def test_prompts_that_begin_alike_are_computed_once():
    arrivals = [Arrival(10.0 * n, 48, (1,), is_read=True, group=1, shared=40) for n in range(4)]
    for cached, rows in ((False, 48 + 16), (True, 8 + 16)):
        found = latencies(setting(prefix_cache=cached), *arrivals)
        assert found[0] == pytest.approx(0.064)
        assert found[1:] == pytest.approx([rows / 1000] * 3)
    assert simulate(setting(prefix_cache=True), arrivals).cached == pytest.approx(3 * 40 / (4 * 48))


@pytest.mark.parametrize(
    "fleet", [ONE, Fleet(Placement.DISAGGREGATED, 2, 1), Fleet(Placement.HYBRID, 2, 1)]
)
@pytest.mark.parametrize("prefill", Prefill)
@pytest.mark.parametrize("model", [SMALL, BLOCKS])
@pytest.mark.parametrize("cached", [False, True])
def test_under_pressure_every_request_ends_once_and_every_page_comes_back(
    fleet, prefill, model, cached
):
    """The pools hold two or three of these; `run` asserts that nobody holds a page at the end."""
    policy = {"prefill": prefill, "fusion": not model.recomputes}
    chosen = setting(model, fleet, policy=policy, prefix_cache=cached, overload=64)
    arrivals = [
        Arrival(0.01 * n, 60 + 37 * n % 150, (1 + n % 4,) * (1 + n % 3), n % 5 == 0, 1 + n % 2, 24)
        for n in range(40)
    ]
    simulator = Simulator(chosen, arrivals)
    simulator.run()
    summary = simulator.summary()
    assert summary.requests == 40
    assert min(simulator.latencies.total) > 0
    assert all(
        first <= total
        for first, total in zip(
            simulator.latencies.first_canvas, simulator.latencies.total, strict=True
        )
    )
    assert 0 < summary.kv_mean <= summary.kv_most <= 1
    assert 0 < summary.busy <= 1


def test_a_pool_that_is_too_small_preempts_and_still_answers_everybody():
    arrivals = [Arrival(0.0, 8, (2,) * 24) for _ in range(6)]
    summary = simulate(setting(), arrivals)
    assert summary.preemptions > 0 and summary.requests == 6


def test_a_prompt_overflows_only_where_every_prefill_worker_has_enough_to_do():
    chosen = setting(fleet=Fleet(Placement.HYBRID, 1, 1), overload=100, link=1e12)

    def prompt_rows_of_the_other(count):
        simulator = Simulator(chosen, [Arrival(0.0, 64, (1,))] * count)
        simulator.run()
        rows = simulator.fleet.others[0].counters.rows
        return sum(n for phase, n in rows.items() if phase.name == "PREFILL")

    assert [prompt_rows_of_the_other(count) for count in (1, 2, 3, 4)] == [0, 0, 64, 128]


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no request has arrived"):
        simulate(setting(), [])


def test_good_requests_are_those_within_the_limit():
    arrivals = [Arrival(0.0, 40, (1,)), Arrival(0.0, 40, (1,))]
    summary = simulate(setting(slo=0.06), arrivals)
    assert summary.good == pytest.approx(1 / summary.seconds)


def test_warm_up_leaves_the_first_requests_out():
    arrivals = [Arrival(0.0, 40, (8,)), Arrival(10.0, 40, (1,))]
    assert simulate(setting(), arrivals, warm_up=0.5).mean == pytest.approx(0.056)


@pytest.mark.slow
def test_memory_does_not_grow_with_requests_that_are_done():
    def peak(count):
        tracemalloc.start()
        drawn = synthetic(WORKLOADS["reads"], DIFFUSION_GEMMA, 20.0, count, 1)
        simulate(Setting(DIFFUSION_GEMMA, ONE), drawn)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    # 16 bytes a request are kept; what is drawn at once is the same for both.
    assert peak(12_000) - peak(6_000) < 6_000 * 64


def test_models_of_the_report_serve_their_longest_request():
    for model in (LLADA, DIFFUSION_GEMMA):
        longest = model.limits.max_context // 2
        arrival = Arrival(0.0, longest, (2,) * (longest // model.canvas))
        policy = {"fusion": not model.recomputes}
        for fleet in (ONE, Fleet(Placement.HYBRID, 1, 1)):
            if model.recomputes:
                policy["prefill"] = Prefill.DEFICIT
            chosen = Setting(model, fleet, Policy(**policy))
            assert simulate(chosen, [arrival]).requests == 1
