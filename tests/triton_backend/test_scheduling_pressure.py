"""Who gives way when pages or budget run out, and that nothing of it shows in an answer."""

from dataclasses import replace

import pytest

from tests.triton_backend.fakes import (
    PAGE,
    make_denoising,
    make_generation,
    make_limits,
    make_request,
)
from tests.triton_backend.serving import Server, check_answers
from triton_backend.core import ErrorKind, RequestError, SplitReason
from triton_backend.policy import LOOK_AHEAD, Prefill

# Preemption


def test_when_pages_run_out_the_latest_gives_way_and_its_answer_is_the_same():
    """Two generations grow beyond what both can have: the second starts again, exactly."""
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    server = Server(*asked, pages=11, sliding=30)
    replies = server.drain()
    assert (replies[1].preemptions, replies[2].preemptions) == (0, 1)
    assert server.counters.preemptions == 1
    assert list(replies) == [1, 2]
    check_answers(replies)


def test_a_preempted_context_is_found_in_the_cache_where_nobody_took_its_pages():
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    plain, cached = (Server(*asked, pages=11, sliding=30, reuse=reuse) for reuse in (False, True))
    for server in (plain, cached):
        check_answers(server.drain())
    rows = [sum(server.counters.rows.values()) for server in (plain, cached)]
    assert rows[1] < rows[0]


def test_a_lower_priority_gives_way_to_a_request_that_waits_for_pages():
    urgent = replace(make_request(2, prompt=12), priority=0)
    slow = replace(make_generation(1, prompt=12, max_tokens=12), priority=1)
    server = Server(slow, pages=7, ageing_seconds=100.0)
    server.step()
    server.add(urgent)
    replies = server.drain()
    assert list(replies) == [2, 1]
    assert replies[1].preemptions == 1
    check_answers(replies)


def test_a_better_rank_goes_on_before_canvases_that_take_the_pages_it_needs():
    """The later one had started and grows: its canvases are in every step, its commits first."""
    grower = replace(
        make_generation(1, prompt=4, max_tokens=60, denoising=make_denoising(steps=1)), priority=1
    )
    server = Server(grower, limits=make_limits(tokens=9), pages=20, ageing_seconds=100.0)
    server.step()
    server.add(make_request(2, prompt=40))
    server.step()
    assert server.counters.preemptions == 0, "for now there is room for both"
    replies = server.drain()
    assert list(replies) == [2, 1]
    assert replies[1].preemptions == 1
    check_answers(replies)


def test_an_equal_priority_does_not():
    server = Server(make_generation(1, prompt=12, max_tokens=12), pages=7)
    server.step()
    server.add(make_request(2, prompt=12))
    replies = server.drain()
    assert list(replies) == [1, 2]
    assert replies[1].preemptions == 0


def test_nobody_is_preempted_in_vain():
    """The request would not fit even then: what runs goes on."""
    keeper = make_generation(1, prompt=16, max_tokens=12)
    small = replace(make_generation(2, prompt=4, max_tokens=8), priority=1)
    server = Server(keeper, small, pages=9, ageing_seconds=100.0)
    server.step()
    server.add(replace(make_request(3, prompt=28), priority=0))
    server.step()
    assert server.counters.preemptions == 0
    check_answers(server.drain())


def test_pages_that_somebody_else_holds_too_are_no_reason_to_preempt():
    """All three stand on the same prompt: without two of them hardly a page would be free."""
    never = make_denoising(steps=8, confidence_threshold=0.0)
    keeper = make_generation(0, prompt=32, max_tokens=8, denoising=never)
    others = [replace(keeper, key=key, priority=1) for key in (1, 2)]
    server = Server(keeper, *others, pages=18, reuse=True, ageing_seconds=100.0)
    for _ in range(3):
        server.step()
    assert server.scheduler.num_running == 3
    server.add(make_request(3, prompt=36))
    server.step()
    assert server.counters.preemptions == 0
    check_answers(server.drain())


@pytest.mark.parametrize("steps", range(6))
def test_cancelling_a_preempted_request_leaves_nothing_behind(steps):
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    server = Server(*asked, pages=11, sliding=30)
    while not server.counters.preemptions:
        server.step()
    for _ in range(steps):
        if server.scheduler.has_work:
            server.step()
    reply = server.scheduler.cancel(2, server.now)
    assert reply is None or reply.error.kind is ErrorKind.CANCELLED
    server.drain()


def test_eight_of_the_longest_prompts_on_pages_for_three_are_all_served():
    asked = [make_request(key, prompt=100, width=4) for key in range(8)]
    need = 100 // PAGE + 1
    replies = Server(*asked, pages=3 * need + 2).drain()
    assert len(replies) == 8
    check_answers(replies)


# Priorities, fairness, patience


def test_priorities_go_first_and_ageing_ends_the_wait():
    fast = [replace(make_request(key), priority=0) for key in range(10, 14)]
    slow = replace(make_request(1), priority=1)
    server = Server(slow, limits=make_limits(tokens=12), ageing_seconds=2.5)
    for request in fast:
        server.add(request)
        server.step()
    server.drain()
    order = list(server.replies)
    assert order[:3] == [10, 11, 12], "each came less than 2.5 s after the slow one"
    assert order[3] == 1, "by then the slow one had waited long enough"


def test_without_fairness_order_is_that_of_arrival_with_it_tenants_take_turns():
    def serve(fair):
        many = [replace(make_request(key), tenant="a") for key in range(6)]
        few = [replace(make_request(key), tenant="b") for key in (6, 7)]
        return list(Server(*many, *few, limits=make_limits(tokens=12), fair=fair).drain())

    assert serve(False) == list(range(8))
    assert serve(True) == [0, 6, 1, 7, 2, 3, 4, 5]


def test_a_tenant_that_comes_back_has_no_claim_on_the_time_it_was_away():
    server = Server(
        *(replace(make_request(key), tenant="a") for key in range(4)),
        limits=make_limits(tokens=12), fair=True,
    )  # fmt: skip
    for _ in range(2):
        server.step()
    for key in range(4, 8):
        server.add(replace(make_request(key), tenant="b"))
    assert list(server.drain())[2:] != [4, 5, 6, 7, 2, 3]


def test_a_tenant_pays_nothing_for_the_time_that_it_was_alone():
    """Nobody waited meanwhile; who comes then starts level and does not get all of it first."""
    server = Server(limits=make_limits(tokens=12), fair=True)
    for key in range(5):
        server.add(replace(make_request(key), tenant="a"))
        server.drain()
    for key in range(5, 10):
        server.add(replace(make_request(key), tenant="b"))
    server.add(replace(make_request(10), tenant="a"))
    assert list(server.drain()).index(10) in (6, 7)


def test_who_waits_too_long_hears_that_the_server_is_overloaded():
    server = Server(
        make_request(1, prompt=40), make_request(2), limits=make_limits(tokens=8),
        queue_timeout=2.0,
    )  # fmt: skip
    server.step()
    assert server.scheduler.expire(server.now) == []
    server.step()
    server.step()
    (reply,) = server.scheduler.expire(server.now)
    assert reply.request.key == 2
    assert reply.error.kind is ErrorKind.UNAVAILABLE
    assert "overloaded and the limit is 2 s" in str(reply.error)
    assert list(server.drain()) == [1]
    assert server.counters.expired == 1


def test_a_request_may_be_less_patient_than_the_server():
    hasty = replace(make_request(2), queue_timeout=0.5)
    server = Server(make_request(1, prompt=40), hasty, limits=make_limits(tokens=8))
    server.step()
    assert [reply.request.key for reply in server.scheduler.expire(server.now)] == [2]


def test_who_has_run_before_is_not_sent_away():
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    server = Server(*asked, pages=11, sliding=30, queue_timeout=0.5)
    while not server.counters.preemptions:
        server.step()
    assert server.scheduler.expire(server.now) == []
    assert set(server.drain()) == {1, 2}


def test_without_strict_order_a_small_request_passes_one_that_lacks_pages():
    def serve(strict):
        server = Server(make_generation(1, prompt=16, max_tokens=12), pages=9, strict=strict)
        server.step()
        server.add(make_request(2, prompt=20))
        server.add(make_request(3, prompt=1, width=2))
        return list(server.drain())

    assert serve(True).index(2) < serve(True).index(3)
    assert serve(False).index(3) < serve(False).index(2)


@pytest.mark.parametrize("passed", [LOOK_AHEAD - 1, LOOK_AHEAD])
def test_not_more_than_so_many_are_passed_in_a_step(passed):
    holder = make_generation(0, prompt=16, max_tokens=12, denoising=make_denoising(steps=8))
    server = Server(holder, pages=9, strict=False)
    server.step()
    for key in range(1, passed + 1):
        server.add(make_request(key, prompt=20))
    server.add(make_request(99, prompt=1, width=2))
    server.step()
    assert (99 in server.replies) == (passed < LOOK_AHEAD)


# Policies


def test_prompts_first_holds_canvases_up_and_chunks_do_not():
    def order(prefill):
        asked = [make_generation(1, prompt=4, max_tokens=4), make_request(2, prompt=60)]
        server = Server(*asked, limits=make_limits(tokens=64), prefill=prefill, token_budget=8)
        server.step()
        server.step()
        return [sum(len(s.token_ids) for s in step.segments) for step in server.steps]

    assert max(order(Prefill.CHUNKED)) <= 8
    assert max(order(Prefill.FIRST)) > 8


def test_the_deficit_rule_saves_up_for_a_prompt_that_is_too_long():
    """A canvas of 4 at each step leaves 12 of 16, as the first did: 26 + 4 run at the second."""
    never = make_denoising(seed=1, steps=8, confidence_threshold=0.0)
    writer = make_generation(1, prompt=0, max_tokens=4, denoising=never)
    server = Server(writer, limits=make_limits(tokens=64), prefill=Prefill.DEFICIT, token_budget=16)
    server.step()
    server.add(make_request(2, prompt=26))
    for _ in range(2):
        server.step()
    assert server.keys()[1:] == [{1}, {1, 2}]
    check_answers(server.drain())


@pytest.mark.parametrize("prefill", Prefill)
def test_a_commit_may_take_the_pages_of_a_prompt_that_was_to_go_on(prefill):
    asked = [make_generation(key, prompt=8, max_tokens=32, steps=2) for key in range(3)]
    options = {"limits": make_limits(tokens=32, segments=8), "prefill": prefill}
    replies = Server(*asked, pages=17, sliding=18, strict=False, **options).drain()
    check_answers(replies)


def test_a_canvas_without_pages_is_a_wait_and_not_a_budget_split():
    asked = [make_request(1, prompt=8, width=4), make_request(2, prompt=8, width=4)]
    replies = Server(*asked, pages=6, limits=make_limits(tokens=20)).drain()
    assert {reply.split for reply in replies.values()} <= {None, SplitReason.PAGES}


# Failures


def test_a_step_that_fails_takes_its_own_requests_along_and_no_page():
    server = Server(*(make_request(key) for key in range(3)), limits=make_limits(tokens=24))
    step = server.scheduler.schedule(0.0)
    error = RequestError("request", "failed")
    lost = server.scheduler.fail(step, error)
    assert [reply.request.key for reply in lost] == [0, 1]
    assert list(server.drain()) == [2]
