"""Many questions over one prompt, and prompts that others computed: shared, and exact."""

from dataclasses import replace

import pytest

from plugins.spec import Phase
from tests.triton_backend.fakes import (
    PAGE,
    WINDOW,
    make_canvas,
    make_denoising,
    make_generation,
    make_limits,
    make_request,
)
from tests.triton_backend.serving import Server, check_answers
from triton_backend.core import Request
from triton_backend.policy import Prefill

# Fan-out


def fan_out(key, prompt, questions, own=5, width=4):
    made = [
        replace(
            make_canvas(width, seed=key * 7 + n),
            prompt_ids=tuple((n * 17 + i * 3 + 40) % 97 for i in range(own)),
        )
        for n in range(questions)
    ]
    return Request(key, make_request(key, prompt).prompt_ids, tuple(made))


@pytest.mark.parametrize("prompt", [8, 10, 11, 3, 0])
def test_many_questions_compute_their_prompt_once_and_each_its_own_part(prompt):
    request = fan_out(1, prompt, questions=6)
    server = Server(request, limits=make_limits(tokens=200, segments=32), pages=64)
    replies = server.drain()
    check_answers(replies)
    assert replies[1].executions == 1, "they fit into one execution"
    tail = prompt % PAGE
    assert server.counters.rows[Phase.PREFILL] == prompt + 6 * (tail + 5)
    assert server.counters.rows[Phase.DENOISE] == 6 * 4


@pytest.mark.parametrize("tokens", [6, 9, 16, 40])
@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("prefill", Prefill)
def test_questions_that_do_not_fit_together_follow_in_later_executions(tokens, fusion, prefill):
    request = fan_out(1, 10, questions=5)
    options = {"limits": make_limits(tokens=tokens), "fusion": fusion, "prefill": prefill}
    replies = Server(request, make_request(2), **options).drain()
    check_answers(replies)


def test_a_question_in_company_is_answered_as_it_is_alone():
    together = fan_out(1, 10, questions=5)
    reads = Server(together, limits=make_limits(tokens=200, segments=32)).drain()[1].reads
    for n, canvas in enumerate(together.canvases):
        alone = Server(replace(together, canvases=(canvas,))).drain()[1].reads[0]
        assert (reads[n].log_probs == alone.log_probs).all()


def test_a_long_context_shares_only_what_a_question_can_see_of_it():
    """Longer than the window: branches hold the window's pages and none before it."""
    request = fan_out(1, WINDOW * 4 + 3, questions=3)
    server = Server(request, limits=make_limits(tokens=24), pages=64, sliding=20)
    check_answers(server.drain())


# Prefix cache


def test_a_prompt_that_is_known_is_not_computed_again():
    asked = [replace(make_request(1, prompt=14), key=key) for key in range(3)]
    server = Server(asked[0], reuse=True)
    server.drain()
    for request in asked[1:]:
        server.add(request)
        server.drain()
    check_answers(server.replies)
    assert [reply.cached_tokens for reply in server.replies.values()] == [0, 12, 12]
    assert server.counters.rows[Phase.PREFILL] == 14 + 2 + 2
    assert (server.counters.prefix_hits, server.counters.prefix_misses) == (2, 1)


def test_the_deficit_rule_charges_no_tokens_that_are_known():
    """Behind a canvas of 4 in a budget of 16, the whole prompt of 40 would wait; its rest does not.

    A first server has seen the prompt, a second one has not.
    """
    started = []
    for seen in (True, False):
        never = make_denoising(seed=1, steps=12, confidence_threshold=0.0)
        server = Server(limits=make_limits(), reuse=True, prefill=Prefill.DEFICIT, token_budget=16)
        if seen:
            server.add(make_request(5, prompt=40))
            server.drain()
        server.add(make_generation(1, prompt=0, max_tokens=4, denoising=never))
        server.step()
        server.add(replace(make_request(5, prompt=40), key=2))
        steps = 0
        while server.scheduler.num_waiting:
            server.step()
            steps += 1
        started.append(steps)
        check_answers(server.drain())
    assert started == [1, 3]


def test_a_generation_goes_on_from_another_ones_committed_canvases():
    first = make_generation(1, prompt=8, max_tokens=12)
    server = Server(first, reuse=True)
    tokens = server.drain()[1].written.token_ids
    server.add(replace(first, key=2, prompt_ids=first.prompt_ids + tokens))
    server.drain()
    check_answers(server.replies)
    assert server.replies[2].cached_tokens == 16, "all but the last canvas was committed"


def test_an_answer_does_not_change_with_the_cache():
    asked = [make_request(1, prompt=30), make_generation(2, prompt=30, max_tokens=12)]
    shared = [replace(asked[1], key=key, prompt_ids=asked[0].prompt_ids) for key in (3, 4)]
    server = Server(*asked, *shared, reuse=True, limits=make_limits(tokens=20))
    check_answers(server.drain())
