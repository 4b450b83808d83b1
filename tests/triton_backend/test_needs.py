"""Whatever the pages and the window: who is accepted can run on no more than it is said to need."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.spec import NO_PAGE
from tests.triton_backend.fakes import (
    VOCAB,
    decode,
    make_canvas,
    make_denoising,
    make_generation,
    make_limits,
)
from triton_backend.core import Request, StepResult
from triton_backend.counters import Counters
from triton_backend.denoise import CanvasState
from triton_backend.kv_cache import KvCache, KvShape
from triton_backend.needs import least_need, widest
from triton_backend.pack import pack
from triton_backend.policy import Policy, Prefill
from triton_backend.reading import Reading
from triton_backend.reads import ReadResult
from triton_backend.scheduler import Scheduler
from triton_backend.writing import Writing

CONTEXT = 128
PROMPTS = st.integers(0, 60).map(lambda length: tuple(range(length)))
STEPS = st.integers(1, 3).map(lambda steps: make_denoising(steps=steps, confidence_threshold=0.0))

POLICIES = st.builds(
    Policy, fusion=st.booleans(), prefill=st.sampled_from(Prefill), check=st.just(True)
)


@st.composite
def reads(draw):
    canvases = []
    for n in range(draw(st.integers(1, 5))):
        own, steps = draw(st.sampled_from([0, 0, 1, 5, 17])), draw(STEPS)
        canvas = make_canvas(draw(st.integers(1, 20)), seed=n)
        denoising = steps if steps.max_steps > 1 else None
        canvases.append(replace(canvas, prompt_ids=tuple(range(own)), denoising=denoising))
    return Request(0, draw(PROMPTS), tuple(canvases))


@st.composite
def generations(draw):
    prompt = draw(PROMPTS)
    made = make_generation(
        0, max_tokens=draw(st.integers(1, CONTEXT - len(prompt))),
        canvas=draw(st.integers(1, 30)), denoising=draw(STEPS),
    )  # fmt: skip
    return replace(made, prompt_ids=prompt)


def said(segment):
    """What an engine could say of a segment."""
    numbers = np.zeros(max(len(segment.token_ids), 2), np.float32)
    if segment.denoises:
        state, numbers = segment.state, numbers[: len(segment.token_ids)]
        steps = state.steps + 1
        ended = steps >= segment.denoising.max_steps
        return CanvasState(
            state.ids, state.pinned, steps, (), state.ids, numbers, numbers, None, ended
        )
    if segment.slots:
        row = numbers[: len(segment.slots)]
        table = np.zeros((len(row), 2), np.float32)
        return ReadResult(table, table, row, row, row.astype(np.int32))
    return None


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(reads(), generations()), st.sampled_from([1, 2, 3, 4, 7, 16]),
    st.sampled_from([0, 1, 2, 3, 5, 8, 13, 30]), POLICIES, st.booleans(),
    st.sampled_from([0, 1, 5, 60]), st.integers(1, 9), st.integers(1, 2),
)  # fmt: skip
def test_the_least_need_is_enough_and_what_a_row_sees_is_there(
    asked, page, window, policy, reuse, more, segments, copies
):
    need = least_need(asked, KvShape(page, window, 0, 0))
    kv = KvCache(KvShape(page, window, need.full, need.sliding), reuse)
    limits = make_limits(tokens=widest(asked) + more, segments=segments, context=CONTEXT)

    def make_work(request):
        return Writing(request, decode, VOCAB, CONTEXT) if request.generation else Reading(request)

    scheduler = Scheduler(limits, kv, policy, Counters(), make_work)
    for key in range(copies):
        scheduler.add(replace(asked, key=key), 0.0)
    while scheduler.has_work:
        step = scheduler.schedule(0.0)
        for segment in step.segments:
            start, behind = segment.committed, max(window - 1, 0)
            assert NO_PAGE not in segment.pages.full[: -(-start // page)]
            seen = range(max(start - behind, 0), start)
            assert all(segment.pages.sliding[place // page] != NO_PAGE for place in seen)
        pack(step, page)
        scheduler.record(step, StepResult(tuple(map(said, step.segments)), 0.0, 0.0))
    scheduler.rest()
