"""Who runs when: the budget, chunks, fusion, waits for pages, order, cancellation."""

import pytest

from tests.triton_backend.fakes import (
    FakeRunner,
    make_canvas,
    make_limits,
    make_request,
    make_scheduler,
    pool_sizes,
)
from triton_backend.core import PROMPT, ErrorKind, Reply, RequestError, SplitReason
from triton_backend.execute import run
from triton_backend.fusion import Room, split_reason
from triton_backend.work import CanvasPart


def new_runner(scheduler):
    runner = FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    return runner


def drain(scheduler, runner=None):
    """Runs to the end; the replies by key, and each step's (rows of prompt, rows of canvas)."""
    runner = runner or new_runner(scheduler)
    replies, shapes = {}, []
    while scheduler.has_work:
        step = scheduler.schedule(0.0)
        prompt = sum(len(s.token_ids) for s in step.segments if s.canvas == PROMPT)
        shapes.append((prompt, sum(len(s.token_ids) for s in step.segments) - prompt))
        for reply in scheduler.record(step, run(runner, step)):
            assert isinstance(reply, Reply)
            assert reply.request.key not in replies
            replies[reply.request.key] = reply
    scheduler.kv.audit()
    assert scheduler.kv.full.num_used == scheduler.kv.sliding.num_used == 0
    return replies, shapes


def serve(*requests, **options):
    scheduler = make_scheduler(**options)
    for request in requests:
        scheduler.add(request, 0.0)
    return *drain(scheduler), scheduler.counters


def test_a_read_that_fits_takes_one_execution():
    replies, shapes, counters = serve(make_request(1, prompt=8, width=4))
    assert shapes == [(8, 4)]
    assert (replies[1].executions, replies[1].fusion) == (1, "fused")
    assert (counters.executions, counters.fused, counters.ok) == (1, 0, 0)


def test_twenty_tokens_in_a_budget_of_sixteen_take_two():
    request = make_request(1, prompt=20, width=4)
    replies, shapes, _ = serve(request, limits=make_limits(tokens=16))
    assert shapes == [(16, 0), (4, 4)]
    assert (replies[1].executions, replies[1].fusion) == (2, "fused")


def test_a_canvas_that_does_not_fit_beside_its_prompt_runs_later():
    request = make_request(1, prompt=16, width=4)
    replies, shapes, _ = serve(request, limits=make_limits(tokens=16))
    assert shapes == [(16, 0), (0, 4)]
    assert (replies[1].executions, replies[1].fusion) == (2, "split: budget")


def test_fusion_switched_off_always_splits():
    replies, shapes, _ = serve(make_request(1), fusion=False)
    assert shapes == [(8, 0), (0, 4)]
    assert replies[1].fusion == "split: disabled"


def test_without_a_prompt_there_is_nothing_to_split():
    for fusion in (True, False):
        replies, shapes, _ = serve(make_request(1, prompt=0), fusion=fusion)
        assert shapes == [(0, 4)]
        assert (replies[1].executions, replies[1].fusion) == (1, "fused")


@pytest.mark.parametrize(
    ("room", "positions", "enabled", "reason"),
    [
        (Room(4, 1, 1), 10, True, None),
        (Room(3, 1, 1), 10, True, SplitReason.BUDGET),
        (Room(4, 0, 1), 10, True, SplitReason.BUDGET),
        (Room(4, 1, 0), 10, True, SplitReason.BUDGET),
        (Room(4, 1, 1), 125, True, SplitReason.LENGTH),
        (Room(4, 1, 1), 10, False, SplitReason.DISABLED),
    ],
)
def test_the_rule_of_fusion(room, positions, enabled, reason):
    canvas = make_canvas(width=4)
    part = CanvasPart(canvas.ids, canvas.slots)
    assert split_reason(part, 0, positions, room, make_limits(), enabled) is reason


def test_sixteen_reads_share_one_execution():
    requests = [make_request(key, prompt=2, width=2) for key in range(8)]
    replies, shapes, _ = serve(*requests)
    assert shapes == [(16, 16)]
    assert {reply.executions for reply in replies.values()} == {1}


def test_segments_and_output_rows_bound_a_step_too():
    requests = [make_request(key, prompt=2, width=2) for key in range(3)]
    assert serve(*requests, limits=make_limits(segments=2))[1] == [(2, 2)] * 3
    two_slots = make_limits(output_rows=1)
    assert serve(*requests, limits=two_slots)[1][0] == (6, 2)


def test_canvases_go_before_prompts_and_nobody_is_overtaken():
    """The long prompt of 2 keeps its place: 3 gets only what 2 leaves."""
    first, second = make_request(1, prompt=14, width=4), make_request(2, prompt=20, width=4)
    third = make_request(3, prompt=3, width=4)
    replies, shapes, _ = serve(first, second, third, limits=make_limits(tokens=16))
    assert list(replies) == [1, 2, 3]
    assert shapes == [(16, 0), (12, 4), (9, 4), (0, 4)]
    assert [r.split for r in replies.values()] == [SplitReason.BUDGET, None, SplitReason.BUDGET]


def test_a_shortage_of_pages_is_one_wait_and_no_split():
    """Each request needs 3 pages of 4: they run one at a time, in order, and fused."""
    scheduler = make_scheduler(pages=4)
    for key in (1, 2):
        scheduler.add(make_request(key, prompt=8, width=4), now=0.0)
    runner = new_runner(scheduler)
    scheduler.record(step := scheduler.schedule(now=1.0), run(runner, step))
    assert scheduler.counters.kv_waits == 1
    assert scheduler.counters.kv_wait_seconds == 0
    scheduler.schedule(now=3.5)
    assert scheduler.counters.kv_wait_seconds == 2.5
    assert scheduler.counters.kv_waits == 1


def test_a_small_request_does_not_pass_the_head_that_waits_for_pages():
    scheduler = make_scheduler(pages=6, limits=make_limits(tokens=8))
    for key, prompt in ((1, 10), (2, 10), (3, 1)):
        scheduler.add(make_request(key, prompt=prompt, width=4), 0.0)
    replies, _ = drain(scheduler)
    assert list(replies) == [1, 2, 3]
    assert scheduler.counters.kv_waits


def test_several_canvases_share_their_prompt_and_join_it_as_far_as_they_fit():
    request = make_request(1, prompt=8, width=4, canvases=4)
    replies, shapes, _ = serve(request, limits=make_limits(tokens=17))
    assert shapes == [(8, 8), (0, 8)]
    assert len(replies[1].reads) == 4
    assert replies[1].fusion == "split: budget"


def test_several_canvases_over_the_context_together_are_split_by_length():
    request = make_request(1, prompt=8, width=4, canvases=3)
    replies, shapes, _ = serve(request, limits=make_limits(context=17))
    assert shapes == [(8, 8), (0, 4)]
    assert replies[1].fusion == "split: length"


def test_numbers_that_are_not_finite_fail_one_request_alone():
    scheduler = make_scheduler()
    for key in (1, 2, 3):
        scheduler.add(make_request(key), 0.0)
    poison = make_request(2).canvases[0].ids[0]
    assert all(poison not in make_request(key).canvases[0].ids for key in (1, 3))
    runner = FakeRunner(poison=poison)
    runner.create_pools(*pool_sizes(scheduler))
    replies, _ = drain(scheduler, runner)
    assert isinstance(replies[2].error, RequestError)
    assert replies[2].reads == ()
    assert replies[1].error is None and replies[3].error is None


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_cancelling_frees_the_pages_in_every_state(steps):
    """Waiting, in the middle of its prompt, and with its canvas outstanding."""
    scheduler = make_scheduler(limits=make_limits(tokens=8))
    scheduler.add(make_request(1, prompt=16), 0.0)
    runner = new_runner(scheduler)
    for _ in range(steps):
        step = scheduler.schedule(0.0)
        assert scheduler.record(step, run(runner, step)) == []
    reply = scheduler.cancel(1, 0.0)
    assert reply.error.kind is ErrorKind.CANCELLED
    assert scheduler.cancel(1, 0.0) is None
    assert not scheduler.has_work
    scheduler.rest()
    scheduler.kv.audit()


def test_cancelling_ends_a_wait_for_pages():
    scheduler = make_scheduler(pages=4)
    for key in (1, 2):
        scheduler.add(make_request(key), 0.0)
    scheduler.schedule(1.0)
    scheduler.cancel(2, 4.0)
    assert scheduler.counters.kv_wait_seconds == 3.0


def test_a_request_that_can_never_run_is_a_fault_of_ours():
    with pytest.raises(AssertionError):
        make_scheduler(pages=2).add(make_request(1, prompt=8), 0.0)


def test_times_are_those_of_the_request():
    scheduler = make_scheduler(limits=make_limits(tokens=8))
    scheduler.add(make_request(1, prompt=12), now=-5.0)
    replies, shapes = drain(scheduler)
    assert len(shapes) == 2
    assert replies[1].timing.queue > 5
    assert 0 < replies[1].timing.execution < 1
