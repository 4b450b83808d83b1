"""Many canvases that are denoised over several steps, each behind its own part of the prompt.

Branches are kept from step to step, so pages could be taken by canvases that cannot go on.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.triton_backend.fakes import (
    FakeRunner,
    fitting_need,
    make_canvas,
    make_denoising,
    make_limits,
    make_scheduler,
    pool_sizes,
)
from triton_backend.core import Reply, Request
from triton_backend.execute import run

MOST_STEPS = 2000


@st.composite
def fan_outs(draw):
    made = []
    for key in range(draw(st.integers(1, 3))):
        canvases = []
        for n in range(draw(st.integers(1, 5))):
            width, own = draw(st.integers(1, 6)), draw(st.integers(0, 9))
            steps = draw(st.integers(1, 4))
            canvases.append(
                replace(
                    make_canvas(width, (draw(st.integers(0, width - 1)),), seed=key * 7 + n),
                    denoising=make_denoising(seed=key, steps=steps) if steps > 1 else None,
                    prompt_ids=tuple((own * 5 + i) % 97 for i in range(own)),
                )
            )
        prompt = tuple((key * 13 + i) % 97 for i in range(draw(st.integers(0, 14))))
        priority = draw(st.integers(-1, 1))
        made.append(Request(key, prompt, tuple(canvases), priority=priority))
    return made


def serve(asked, limits, full, sliding, **policy):
    """Every reply, by key; an execution a turn of the loop, and never one without work in it."""
    scheduler = make_scheduler(limits, full, sliding, **policy)
    runner = FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    for now, request in enumerate(asked):
        scheduler.add(request, now)
    replies = {}
    for now in range(MOST_STEPS):
        if not scheduler.has_work:
            break
        step = scheduler.schedule(now)
        news = scheduler.record(step, run(runner, step))
        replies |= {one.request.key: one for one in news if isinstance(one, Reply)}
    assert not scheduler.has_work, "it never ends"
    scheduler.rest()
    return replies


@settings(max_examples=150, deadline=None)
@given(fan_outs(), st.integers(6, 40), st.booleans(), st.booleans(), st.data())
def test_a_pool_that_just_holds_one_request_serves_them_all_with_their_lone_answers(
    asked, tokens, reuse, strict, data
):
    need = fitting_need(asked)
    full, sliding = (most + data.draw(st.integers(0, 6)) for most in need)
    limits = make_limits(tokens=tokens, segments=data.draw(st.integers(1, 6)), output_rows=6)
    replies = serve(asked, limits, full, sliding, reuse=reuse, strict=strict)
    assert sorted(replies) == [request.key for request in asked]
    for request in asked:
        for n, canvas in enumerate(request.canvases):
            prompt = request.prompt_ids + canvas.prompt_ids
            lone = Request(9, prompt, (replace(canvas, prompt_ids=()),))
            (right,) = serve([lone], make_limits(), 64, 64)[9].reads
            found = replies[request.key].reads[n]
            assert (found.argmax == right.argmax).all()
            assert abs(found.log_probs - right.log_probs).max() < 1e-5
