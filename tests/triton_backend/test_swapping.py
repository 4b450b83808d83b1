"""Contexts of preempted requests in host memory: out, back, and no answer shows it."""

import pytest

from tests.triton_backend.fakes import make_generation, make_limits
from tests.triton_backend.serving import Server, check_answers
from triton_backend.core import ErrorKind, RequestError


@pytest.mark.parametrize("reuse", [True, False])
def test_with_host_memory_nothing_is_computed_twice_and_answers_are_the_same(reuse):
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    lone = [Server(request) for request in asked]
    server = Server(*asked, pages=11, sliding=30, host=16, reuse=reuse)
    replies = server.drain()
    assert replies[2].preemptions == 1
    check_answers(replies)
    for one in lone:
        one.drain()
    rows = [sum(one.counters.rows.values()) for one in (server, *lone)]
    assert rows[0] == rows[1] + rows[2]
    assert server.counters.swapped_pages > 0


def test_host_memory_that_is_full_means_computing_again():
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    server = Server(*asked, pages=11, sliding=30, host=1)
    check_answers(server.drain())
    assert server.counters.preemptions == 1
    assert server.counters.swapped_pages == 0


def preempted(**options):
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2)]
    server = Server(*asked, pages=11, sliding=30, host=16, **options)
    while not server.counters.preemptions:
        server.step()
    return server


def test_a_swapped_request_that_is_cancelled_leaves_its_slots():
    server = preempted()
    assert server.scheduler.host.full.num_used
    assert server.scheduler.cancel(2, server.now).error.kind is ErrorKind.CANCELLED
    assert not server.scheduler.host.full.num_used
    server.drain()


def test_a_context_comes_back_whole_where_the_sliding_group_has_room_for_its_window_only():
    """21 pages of full layers, 14 of sliding ones: only what the window sees is brought back."""
    asked = [make_generation(key, prompt=80, max_tokens=44) for key in (1, 2)]
    server = Server(*asked, pages=44, sliding=14, host=60, limits=make_limits(tokens=16))
    replies = server.drain()
    assert replies[2].preemptions == 1
    assert server.counters.swapped_pages > 20
    check_answers(replies)


def test_what_comes_back_from_the_host_is_not_the_prefix_caches():
    server = preempted(reuse=False)
    assert server.drain()[2].cached_tokens == 0
    assert (server.counters.prefix_hits, server.counters.prefix_tokens) == (0, 0)
    begun = sum(len(reply.request.prompt_ids) for reply in server.replies.values())
    assert server.counters.context_started == begun, "nothing of it is computed again either"


@pytest.mark.parametrize("kind", ["saves", "loads"])
def test_copies_that_a_failed_step_was_to_make_are_not_relied_upon(kind):
    """Neither pages that were to go out with it, nor pages that were to come back."""
    asked = [make_generation(key, prompt=8, max_tokens=24) for key in (1, 2, 3)]
    server = Server(*asked, pages=11, sliding=30, host=16)
    while True:
        step = server.scheduler.schedule(server.now)
        if getattr(step, kind):
            break
        server.finish(step)
    lost = server.scheduler.fail(step, RequestError("request", "failed"))
    assert len(lost) < 3
    check_answers(server.drain())
