"""Whatever comes in whatever order: one right answer each, no page lost, nobody starves."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.spec import Phase
from tests.triton_backend.fakes import (
    PAGE,
    FakeRunner,
    fitting_need,
    given_log_probs,
    lone_log_probs,
    make_canvas,
    make_generation,
    make_limits,
    make_scheduler,
    pool_sizes,
)
from tests.triton_backend.serving import POLICY_CHOICES
from triton_backend.core import ErrorKind, Reply, Request
from triton_backend.execute import run

TOKENS = st.integers(4, 40)
WIDTHS = st.integers(1, 4)
# Few different tokens, so that prompts often begin alike.
PROMPTS = st.one_of(
    st.lists(st.integers(0, 96), max_size=24),
    st.builds(lambda n, tail: [5] * n + tail, st.integers(0, 30), st.lists(st.integers(0, 2))),
).map(lambda ids: tuple(ids[:36]))
POLICIES = st.fixed_dictionaries(POLICY_CHOICES)


@st.composite
def canvases(draw, key):
    made = []
    own = draw(st.booleans())
    for n in range(draw(st.integers(1, 3))):
        width = draw(WIDTHS)
        slots = draw(st.permutations(range(width)))[: draw(st.integers(1, width))]
        labels = draw(
            st.lists(
                st.lists(st.integers(0, 96), min_size=1, max_size=4, unique=True).map(tuple),
                min_size=len(slots), max_size=len(slots),
            )
        )  # fmt: skip
        canvas = make_canvas(width, slots, tuple(labels), seed=key * 7 + n)
        if own and draw(st.booleans()):
            canvas = replace(canvas, prompt_ids=draw(PROMPTS)[:7])
        made.append(canvas)
    return tuple(made)


@st.composite
def requests(draw):
    made = []
    for key in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 3)):
            request = Request(key, draw(PROMPTS), draw(canvases(key)))
        else:
            request = make_generation(
                key, max_tokens=draw(st.integers(1, 12)), canvas=draw(st.integers(1, 4)),
                steps=draw(st.integers(1, 4)),
            )  # fmt: skip
            request = replace(request, prompt_ids=draw(PROMPTS))
        extras = {
            "priority": draw(st.integers(-1, 2)),
            "tenant": draw(st.sampled_from("ab")),
            "salt": draw(st.sampled_from(["", "x"])),
        }
        made.append(replace(request, **extras))
    return made


def lone_written(request):
    scheduler = make_scheduler(pages=64)
    runner = FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    scheduler.add(request, 0)
    while scheduler.has_work:
        step = scheduler.schedule(0)
        for news in scheduler.record(step, run(runner, step)):
            if isinstance(news, Reply):
                return news.written
    raise AssertionError("no reply")


@settings(max_examples=300, deadline=None)
@given(requests(), TOKENS, POLICIES, st.data())
def test_every_request_gets_its_lone_answer_once_and_every_page_comes_back(
    asked, tokens, policy, data
):
    need = fitting_need(asked)
    limits = make_limits(tokens=tokens, segments=data.draw(st.integers(1, 8)), output_rows=6)
    scheduler = make_scheduler(
        limits,
        pages=need.full + data.draw(st.integers(0, 30)),
        sliding=need.sliding + data.draw(st.integers(0, 30)),
        host=(host := data.draw(st.sampled_from([0, 4, 40]))),
        **policy,
    )
    runner = FakeRunner()
    runner.create_pools(*pool_sizes(scheduler))
    runner.create_host_pools(host, host)
    arrivals = {r.key: data.draw(st.integers(0, 4)) for r in asked}
    cancels = data.draw(st.dictionaries(st.sampled_from(asked), st.integers(0, 6), max_size=2))
    replies = []
    for now in range(most_steps(asked)):
        for request in (r for r in asked if arrivals[r.key] == now):
            scheduler.add(request, now)
        due = [request for request, at in cancels.items() if at == now]
        replies += filter(None, (scheduler.cancel(request.key, now) for request in due))
        if scheduler.has_work:
            step = scheduler.schedule(now)
            _check_within(step, limits)
            _check_scratch(step)
            news = scheduler.record(step, run(runner, step))
            replies += [one for one in news if isinstance(one, Reply)]
    assert sorted(reply.request.key for reply in replies) == [r.key for r in asked]
    assert not scheduler.has_work
    scheduler.rest()
    for reply in replies:
        if reply.error is not None:
            assert reply.error.kind is ErrorKind.CANCELLED and reply.request in cancels
            continue
        if reply.written is not None:
            assert reply.written == lone_written(reply.request)
        for n, read in enumerate(reply.reads):
            given = given_log_probs(reply.request, read, n)
            assert abs(given - lone_log_probs(reply.request, n)).max() < 1e-5


def most_steps(asked) -> int:
    """Nothing starves if all is done when each request has been computed alone, row by row, as
    often as others may have taken its pages away."""
    rows = 5
    for request in asked:
        rows += len(request.prompt_ids) + sum(
            len(canvas.ids) + len(canvas.prompt_ids) + PAGE for canvas in request.canvases
        )
        if request.generation is not None:
            rows += 12 * (request.generation.denoising.max_steps + 1)
    return rows * len(asked)


def _check_within(step, limits):
    assert sum(len(s.token_ids) for s in step.segments) <= limits.max_tokens
    assert len(step.segments) <= limits.max_segments
    assert sum(len(s.slots) for s in step.segments) <= limits.max_output_rows


def _check_scratch(step):
    """No canvas of a step shares a scratch page with anything else in it."""
    for group in ("full", "sliding"):
        scratch, kept = [], set()
        for segment in step.segments:
            context = -(-segment.committed // PAGE)
            if segment.phase == Phase.DENOISE:
                scratch += getattr(segment.pages, group)[context:]
            kept |= set(getattr(segment.pages, group)[:context])
        assert len(scratch) == len(set(scratch))
        assert not kept & set(scratch)
