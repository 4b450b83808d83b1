"""Generations through the scheduler: how many executions, which rows, whoever shares them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.spec import Phase
from tests.triton_backend.fakes import (
    FakeRunner,
    fitting_pages,
    given_log_probs,
    lone_log_probs,
    make_canvas,
    make_denoising,
    make_generation,
    make_limits,
    make_request,
    make_scheduler,
    pool_sizes,
)
from triton_backend.core import ErrorKind, Piece, Reply, Request, SplitReason
from triton_backend.execute import run


def serve(*requests, runner=None, cancel=(), **options):
    """Runs to the end; replies and pieces by key, the scheduler's counters."""
    scheduler = make_scheduler(**options)
    runner = runner or FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    for request in requests:
        scheduler.add(request, 0.0)
    replies, pieces = {}, {request.key: [] for request in requests}
    while scheduler.has_work:
        for key, step in cancel:
            if step == scheduler.counters.executions and key not in replies:
                replies[key] = scheduler.cancel(key, 0.0)
        if not scheduler.has_work:
            break
        step = scheduler.schedule(0.0)
        for news in scheduler.record(step, run(runner, step)):
            if isinstance(news, Piece):
                assert news.request.key not in replies, "a piece after the final reply"
                pieces[news.request.key].append(news)
            else:
                assert news.request.key not in replies
                replies[news.request.key] = news
    scheduler.rest()
    return replies, pieces, scheduler.counters


def lone(request) -> Reply:
    return serve(request)[0][request.key]


@pytest.mark.parametrize("max_tokens", [3, 4, 9, 16])
def test_fused_executions_are_the_denoising_steps_and_nothing_else(max_tokens):
    request = make_generation(3, max_tokens=max_tokens)
    replies, _, counters = serve(request)
    steps = replies[3].written.steps
    assert len(steps) == -(-max_tokens // 4)
    assert replies[3].executions == counters.executions == sum(steps)
    assert replies[3].fusion == "fused"


def test_unfused_executions_are_one_more_for_the_prompt_and_for_each_commit():
    request = make_generation(3, max_tokens=16)
    replies, _, counters = serve(request, fusion=False)
    steps = replies[3].written.steps
    assert counters.executions == 1 + sum(steps) + (len(steps) - 1)
    assert replies[3].split is SplitReason.DISABLED


def test_the_prompt_and_each_committed_canvas_are_encoded_once():
    """B25: the prompt is computed again at every step. The last canvas is never encoded."""
    _, _, counters = serve(make_generation(3, prompt=10, max_tokens=16))
    assert counters.rows[Phase.PREFILL] == 10
    assert counters.rows[Phase.COMMIT] == 12


def test_a_commit_that_does_not_fit_beside_the_next_canvas_goes_first():
    request = make_generation(3, prompt=0, max_tokens=8, steps=1)
    replies, _, counters = serve(request, limits=make_limits(tokens=7))
    assert counters.executions == 3
    assert replies[3].split is SplitReason.BUDGET
    assert replies[3].written == lone(request).written


def test_commits_of_running_generations_come_before_new_prompts():
    writer = make_generation(1, prompt=0, max_tokens=8, steps=1)
    scheduler = make_scheduler(limits=make_limits(tokens=8))
    runner = FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    scheduler.add(writer, 0.0)
    step = scheduler.schedule(0.0)
    scheduler.add(make_request(2, prompt=30), 0.0)
    scheduler.record(step, run(runner, step))
    second = scheduler.schedule(0.0)
    assert [(s.key, s.phase) for s in second.segments] == [(1, Phase.COMMIT), (1, Phase.DENOISE)]


def test_pieces_join_to_the_reply():
    replies, pieces, _ = serve(make_generation(3, max_tokens=11))
    written = replies[3].written
    assert sum((piece.token_ids for piece in pieces[3]), ()) == written.token_ids
    assert "".join(piece.text for piece in pieces[3]) == written.text
    assert sum((piece.log_probs for piece in pieces[3]), ()) == written.log_probs
    assert [piece.step for piece in pieces[3]] == list(written.steps)


def test_numbers_that_are_not_finite_fail_that_generation_alone():
    poisoned = make_generation(1, start_ids=(96,), pinned=(0,))
    healthy = [make_generation(key, prompt=5) for key in (2, 3)]
    canvas = [part for part in healthy if 96 in part.prompt_ids]
    assert not canvas
    replies, _, _ = serve(poisoned, *healthy, runner=FakeRunner(poison=96))
    assert replies[1].error.kind is ErrorKind.INTERNAL
    for request in healthy:
        if replies[request.key].error is None:
            assert replies[request.key].written == lone(request).written


def test_a_read_of_several_steps_takes_as_many_executions_and_reads_the_last():
    canvas = make_canvas(4, slots=(1, 2), labels=((1, 2), (3, 4)))
    denoised = Request(1, (5, 6, 7), (replace(canvas, denoising=make_denoising(steps=3)),))
    replies, _, counters = serve(denoised)
    assert counters.executions == replies[1].executions == 3
    assert replies[1].reads[0].log_probs.shape == (2, 2)
    plain = serve(Request(1, (5, 6, 7), (canvas,)))[0][1].reads[0]
    assert not (plain.log_probs == replies[1].reads[0].log_probs).all()


@st.composite
def requests(draw):
    made = []
    for key in range(draw(st.integers(1, 5))):
        prompt = draw(st.integers(0, 12))
        if draw(st.booleans()):
            made.append(
                make_generation(
                    key, prompt=prompt, max_tokens=draw(st.integers(1, 12)),
                    canvas=draw(st.integers(1, 4)), steps=draw(st.integers(1, 4)),
                    stop_ids=frozenset(draw(st.sets(st.integers(0, 96), max_size=8))),
                )
            )  # fmt: skip
        else:
            made.append(make_request(key, prompt, draw(st.integers(1, 4)), draw(st.integers(1, 2))))
    return made


@settings(max_examples=120, deadline=None)
@given(requests(), st.integers(4, 24), st.integers(0, 20), st.booleans(), st.data())
def test_every_request_gets_its_lone_answer_whoever_shares_its_executions(
    asked, tokens, spare, fusion, data
):
    pages = fitting_pages(asked) + spare
    cancel = [
        (request.key, data.draw(st.integers(0, 12)))
        for request in asked
        if data.draw(st.booleans())
    ]
    replies, pieces, _ = serve(
        *asked, pages=pages, fusion=fusion, limits=make_limits(tokens=tokens), cancel=cancel
    )
    assert set(replies) == {request.key for request in asked}
    for request in asked:
        reply = replies[request.key]
        if reply.error is not None:
            assert reply.error.kind is ErrorKind.CANCELLED
        elif request.generation is None:
            for n, read in enumerate(reply.reads):
                given = given_log_probs(request, read, n)
                np.testing.assert_allclose(given, lone_log_probs(request, n), atol=1e-5)
        else:
            assert reply.written == lone(request).written
            told = sum((piece.token_ids for piece in pieces[request.key]), ())
            assert told == reply.written.token_ids
