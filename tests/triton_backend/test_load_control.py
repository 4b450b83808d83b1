"""Under load generations get fewer steps, never fewer than they allow, and all again after it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.triton_backend.fakes import make_denoising, make_generation, make_limits, make_request
from tests.triton_backend.serving import Server, check_answers
from triton_backend.accept import ConfidenceFactor, ConfidenceThreshold, EntropyBound, Statistics
from triton_backend.load_control import EFFORTS

NEVER = {"confidence_threshold": 0.0}


def endless(key, **changes):
    """A canvas that takes all of its 8 steps."""
    denoising = make_denoising(seed=key, steps=8, **NEVER)
    request = make_generation(key, prompt=4, max_tokens=8, denoising=denoising)
    asked = replace(request.generation, **changes)
    return replace(request, generation=asked)


def serve(count, seconds, **changes):
    """Generations that come at once to a server that takes two canvases a second."""
    server = Server(limits=make_limits(tokens=8), slo_seconds=seconds)
    for key in range(count):
        server.add(endless(key, **changes))
    while server.scheduler.has_work:
        step = server.scheduler.schedule(server.now)
        server.now += 1
        server.finish(step, seconds=1.0)
    return server


def test_without_a_target_or_without_load_everybody_gets_all_steps():
    for seconds, count in ((0.0, 6), (1000.0, 6)):
        replies = serve(count, seconds).replies
        assert {reply.written.effort for reply in replies.values()} == {1.0}
        assert {reply.written.steps for reply in replies.values()} == {(8, 8)}
        check_answers(replies)


def test_under_load_canvases_end_earlier_and_the_answer_says_so():
    eased, full = serve(6, 30.0), serve(6, 0.0)
    efforts = [reply.written.effort for reply in eased.replies.values()]
    assert min(efforts) < 1
    assert set(efforts) <= set(EFFORTS)
    assert eased.counters.executions < full.counters.executions
    for reply in eased.replies.values():
        most = max(1, round(8 * 1.0))
        assert all(steps <= most for steps in reply.written.steps)
        if reply.written.effort < 1:
            assert min(reply.written.steps) < 8


def test_a_shorter_target_never_means_more_steps():
    totals = [
        sum(sum(reply.written.steps) for reply in serve(6, seconds).replies.values())
        for seconds in (5.0, 20.0, 40.0, 80.0, 1000.0)
    ]
    assert totals == sorted(totals)


@pytest.mark.parametrize("floor", [0.5, 0.9, 1.0])
def test_nobody_is_held_to_less_than_the_floor_of_the_request(floor):
    replies = serve(6, 5.0, effort_floor=floor).replies
    assert min(reply.written.effort for reply in replies.values()) == floor
    assert all(
        steps >= round(8 * floor) for reply in replies.values() for steps in reply.written.steps
    )


def test_when_the_burst_is_over_all_steps_are_given_again():
    server = serve(6, 30.0)
    server.add(endless(99))
    while server.scheduler.has_work:
        step = server.scheduler.schedule(server.now)
        server.now += 1
        server.finish(step, seconds=1.0)
    assert server.replies[99].written.effort == 1.0


def test_reads_of_one_step_have_nothing_to_give():
    server = Server(make_request(1), slo_seconds=0.001)
    check_answers(server.drain())


@pytest.mark.parametrize(
    "rule", [EntropyBound(0.1), ConfidenceThreshold(0.9), ConfidenceFactor(1.0)]
)
def test_an_eased_rule_accepts_no_less(rule):
    drawn = np.random.default_rng(0)
    for _ in range(50):
        statistics = Statistics(drawn.exponential(0.1, 16), drawn.uniform(0.5, 1, 16))
        accepted = rule.accept(statistics)
        for effort in EFFORTS[1:]:
            more = rule.eased(effort).accept(statistics)
            assert (more | accepted == more).all()
            accepted = more


def test_full_effort_is_the_very_same_setting():
    denoising = make_denoising()
    assert denoising.eased(1.0) is denoising
    half = denoising.eased(0.5)
    assert (half.step_cap, half.max_steps) == (2, 4)
    assert half.temperature(1) == denoising.temperature(1), "the schedule stays"
