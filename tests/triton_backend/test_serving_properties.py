"""Whatever comes in whatever order: one right answer each, no page lost, nobody starves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.spec import Phase
from tests.triton_backend.fakes import (
    PAGE,
    FakeRunner,
    given_log_probs,
    lone_log_probs,
    make_canvas,
    make_limits,
    make_scheduler,
)
from triton_backend.core import ErrorKind, Request
from triton_backend.execute import run
from triton_backend.progress import pages_needed

TOKENS = st.integers(4, 40)
WIDTHS = st.integers(1, 4)


@st.composite
def requests(draw):
    count = draw(st.integers(1, 6))
    made = []
    for key in range(count):
        prompt = draw(st.lists(st.integers(0, 96), max_size=24))
        canvases = []
        for n in range(draw(st.integers(1, 3))):
            width = draw(WIDTHS)
            slots = draw(st.permutations(range(width)))[: draw(st.integers(1, width))]
            labels = draw(
                st.lists(
                    st.lists(st.integers(0, 96), min_size=1, max_size=4, unique=True).map(tuple),
                    min_size=len(slots), max_size=len(slots),
                )
            )  # fmt: skip
            canvases.append(make_canvas(width, slots, tuple(labels), seed=key * 7 + n))
        made.append(Request(key, tuple(prompt), tuple(canvases)))
    return made


def _check_within(step, limits):
    assert sum(len(s.token_ids) for s in step.segments) <= limits.max_tokens
    assert len(step.segments) <= limits.max_segments
    assert sum(len(s.slots) for s in step.segments) <= limits.max_output_rows


@settings(max_examples=150, deadline=None)
@given(requests(), TOKENS, st.integers(0, 30), st.booleans(), st.data())
def test_every_request_gets_its_lone_answer_once_and_every_page_comes_back(
    asked, tokens, spare_pages, fusion, data
):
    pages = max(pages_needed(request, PAGE) for request in asked) + spare_pages
    limits = make_limits(tokens=tokens, segments=data.draw(st.integers(1, 8)), output_rows=6)
    scheduler = make_scheduler(limits, pages, fusion)
    runner = FakeRunner()
    runner.create_pools(pages)
    arrivals = {r.key: data.draw(st.integers(0, 4)) for r in asked}
    cancels = data.draw(st.dictionaries(st.sampled_from(asked), st.integers(0, 6), max_size=2))
    # Rows bound the work: nothing starves if all is done within one step a row.
    bound = 5 + sum(len(r.prompt_ids) + sum(len(c.ids) for c in r.canvases) for r in asked)
    replies = []
    for now in range(bound):
        for request in (r for r in asked if arrivals[r.key] == now):
            scheduler.add(request, now)
        due = [request for request, at in cancels.items() if at == now]
        replies += filter(None, (scheduler.cancel(request.key, now) for request in due))
        if scheduler.has_work:
            step = scheduler.schedule(now)
            _check_within(step, limits)
            _check_scratch(step)
            replies += scheduler.record(step, run(runner, step))
        scheduler.pool.audit()
    assert sorted(reply.request.key for reply in replies) == [r.key for r in asked]
    assert not scheduler.has_work
    scheduler.rest()
    for reply in replies:
        if reply.error is not None:
            assert reply.error.kind is ErrorKind.CANCELLED and reply.request in cancels
            continue
        for n, read in enumerate(reply.reads):
            given = given_log_probs(reply.request, read, n)
            assert abs(given - lone_log_probs(reply.request, n)).max() < 1e-5


def _check_scratch(step):
    """No canvas of a step shares a scratch page with anything else in it."""
    held = [
        page
        for segment in step.segments
        if segment.phase == Phase.DENOISE
        for page in segment.pages[-(-segment.committed // PAGE) :]
    ]
    kept = {page for s in step.segments for page in s.pages[: -(-s.committed // PAGE)]}
    assert len(held) == len(set(held))
    assert not kept & set(held)
