"""Arrivals, steps, failures, cancels in any order: one right answer each, no page lost."""

from collections import Counter
from dataclasses import replace
from functools import cache

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.triton_backend.fakes import (
    FakeRunner,
    given_log_probs,
    make_canvas,
    make_denoising,
    make_generation,
    make_limits,
    make_scheduler,
    make_shape,
    pool_sizes,
)
from tests.triton_backend.serving import POLICY_CHOICES
from triton_backend.core import ErrorKind, Reply, Request, RequestError
from triton_backend.execute import run
from triton_backend.needs import least_need

POISON = 96
FAILED = RequestError("request", "was in a failed step", kind=ErrorKind.INTERNAL)
MOST_LIVE = 8

# Few beginnings and few tokens, so that contexts often begin alike.
PROMPTS = st.builds(
    lambda begins, length, tail: tuple([begins] * length + tail),
    st.integers(0, 1), st.sampled_from([4, 8, 9, 15, 20, 40, 0]),
    st.lists(st.integers(0, 2), max_size=8),
)  # fmt: skip
TREATMENTS = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([-1, 0, 0, 1]),
        "tenant": st.sampled_from("ab"),
        "salt": st.sampled_from(["", "", "x"]),
        "queue_timeout": st.sampled_from([0.0, 0.0, 6.0]),
    }
)
POLICIES = st.fixed_dictionaries(
    {
        **POLICY_CHOICES,
        "ageing_seconds": st.sampled_from([0.0, 4.0, 50.0]),
        "token_budget": st.sampled_from([0, 5]),
        "queue_timeout": st.sampled_from([0.0, 30.0]),
        "host": st.sampled_from([60, 60, 6, 0]),
    }
)
CANVASES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 6), st.sampled_from([1, 1, 3])),
    min_size=1, max_size=4,
)  # fmt: skip


def read_of(key, prompt, sizes):
    """Canvases of a width, some tokens of prompt of their own, and some steps."""
    made = []
    for n, (width, own, steps) in enumerate(sizes):
        canvas = make_canvas(width, slots=(width - 1,), seed=key * 7 + n)
        denoising = make_denoising(seed=n, steps=steps) if steps > 1 else None
        ids = tuple((n * 17 + i * 3 + 40) % POISON for i in range(own))
        made.append(replace(canvas, prompt_ids=ids, denoising=denoising))
    return Request(key, prompt, tuple(made))


@cache
def alone(request, poison):
    """The reply that a request gets from a server of its own with room for everything."""
    scheduler, runner = make_scheduler(pages=128), FakeRunner(poison=poison)
    runner.create_pools(*pool_sizes(scheduler))
    scheduler.add(request, 0.0)
    while True:
        step = scheduler.schedule(0.0)
        for news in scheduler.record(step, run(runner, step)):
            if isinstance(news, Reply):
                return news


def most_steps(request):
    """Executions that it could take row by row."""
    rows = len(request.prompt_ids) + 1
    for canvas in request.canvases:
        rows += len(canvas.prompt_ids) + 4 + (canvas.denoising.max_steps if canvas.denoising else 1)
    if (asked := request.generation) is not None:
        rows += asked.max_tokens * (asked.denoising.max_steps + 1)
    return rows


class Serving(RuleBasedStateMachine):
    @initialize(
        policy=POLICIES, tokens=st.integers(5, 40), segments=st.integers(1, 8),
        pages=st.integers(10, 26), sliding=st.integers(8, 20),
        poison=st.sampled_from([None, POISON]),
        treatments=st.lists(TREATMENTS, min_size=2, max_size=4),
    )  # fmt: skip
    def open(self, policy, tokens, segments, pages, sliding, poison, treatments):
        """Under load from the start."""
        self.shape = make_shape(pages, sliding)
        limits = make_limits(tokens=tokens, segments=segments, output_rows=4)
        self.scheduler = make_scheduler(limits, pages=pages, sliding=sliding, **policy)
        self.runner = FakeRunner(poison=poison)
        self.runner.create_pools(pages, sliding)
        self.runner.create_host_pools(policy["host"], policy["host"])
        self.now, self.next_key = 0.0, 0
        self.live, self.doomed = {}, {}
        self.generations_come((5,) * 8, 32, 4, 2, treatments)

    @rule(prompt=PROMPTS, sizes=CANVASES, treatment=TREATMENTS)
    def a_read_comes(self, prompt, sizes, treatment):
        self.add(replace(read_of(self.next_key, prompt, sizes), **treatment))

    @rule(
        prompt=PROMPTS, tokens=st.sampled_from([24, 40, 9, 1]), width=st.sampled_from([4, 3, 5, 1]),
        steps=st.integers(1, 3), treatments=st.lists(TREATMENTS, min_size=1, max_size=3),
    )  # fmt: skip
    def generations_come(self, prompt, tokens, width, steps, treatments):
        """That all grow at once, so that pages run out behind their backs."""
        for treatment in treatments:
            made = make_generation(self.next_key, max_tokens=tokens, canvas=width, steps=steps)
            ids = prompt if self.next_key % 2 else tuple(token + 7 for token in prompt)
            self.add(replace(made, prompt_ids=ids, **treatment))

    def add(self, request):
        need = least_need(request, self.shape)
        fits = need.full <= self.shape.full_pages and need.sliding <= self.shape.sliding_pages
        if fits and len(self.live) < MOST_LIVE:
            self.scheduler.add(request, self.now)
            self.live[request.key] = request
            self.next_key += 1

    @rule(times=st.sampled_from([1, 2, 10]))
    def steps_run(self, times):
        for _ in range(times if self.live else 0):
            self.step()

    def step(self):
        if not self.scheduler.has_work:
            return
        self.now += 1
        step = self.scheduler.schedule(self.now)
        self.check_holders()
        self.take(self.scheduler.record(step, run(self.runner, step)))

    @precondition(lambda self: self.live)
    @rule(ran=st.booleans())
    def a_step_fails(self, ran):
        step = self.scheduler.schedule(self.now)
        if ran:
            run(self.runner, step)
        keys = {segment.key for segment in step.segments}
        self.doomed.update(dict.fromkeys(keys, ErrorKind.INTERNAL))
        lost = self.scheduler.fail(step, FAILED)
        assert {reply.request.key for reply in lost} == keys
        self.take(lost)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def a_client_goes_away(self, data):
        key = data.draw(st.sampled_from(sorted(self.live)))
        self.doomed[key] = ErrorKind.CANCELLED
        self.take([self.scheduler.cancel(key, self.now)])
        assert self.scheduler.cancel(key, self.now) is None

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def patience_ends(self):
        gone = self.scheduler.expire(self.now)
        for reply in gone:
            assert not reply.executions
            self.doomed[reply.request.key] = ErrorKind.UNAVAILABLE
        self.take(gone)

    def take(self, news):
        for reply in news:
            if isinstance(reply, Reply):
                del self.live[reply.request.key]
                self.check(reply)

    def check(self, reply):
        request = reply.request
        if request.key in self.doomed:
            assert reply.error.kind is self.doomed[request.key]
            return
        expected = alone(request, self.runner.poison)
        assert str(reply.error) == str(expected.error)
        assert reply.written == expected.written
        for n, both in enumerate(zip(reply.reads, expected.reads, strict=True)):
            mine, its = (given_log_probs(request, read, n) for read in both)
            assert (mine == its).all()

    @invariant()
    def everybody_is_somewhere_and_so_is_every_page(self):
        if not hasattr(self, "scheduler"):
            return
        assert self.scheduler.num_running + self.scheduler.num_waiting == len(self.live)
        self.check_holders()

    def check_holders(self):
        """Each page has as many holders as the pool believes, in both groups and on the host."""
        scheduler = self.scheduler
        scheduler.kv.audit()
        held = {False: Counter(), True: Counter()}
        for progress in scheduler._running:
            for sequence in (progress.context, *progress.branches.values()):
                assert len(sequence.full) == len(sequence.sliding)
                held[False].update(sequence.full)
                held[True].update(sequence.sliding[sequence.first :])
        for pages in scheduler._made.scratch:
            held[False].update(pages.full)
            held[True].update(pages.sliding)
        for sliding, pool in ((False, scheduler.kv.full), (True, scheduler.kv.sliding)):
            assert pool._holders == [held[sliding][page] for page in range(pool.total)]
        kept = [one.swapped for one in scheduler._waiting if one.swapped]
        kept += scheduler.host._returned
        assert scheduler.host.full.num_used == sum(len(one.full) for one in kept)
        assert scheduler.host.sliding.num_used == sum(len(one.sliding) for one in kept)

    def teardown(self):
        """Nobody starves: without further arrivals all are answered, the best rank first of all."""
        if not hasattr(self, "scheduler"):
            return
        bound = sum(map(most_steps, self.live.values()))
        for _ in range(bound * max(len(self.live), 1)):
            self.step()
        assert not self.live
        self.scheduler.rest()
        counters = self.scheduler.counters
        assert counters.kv_wait_seconds >= 0
        assert counters.prefix_tokens <= counters.context_started


Serving.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
test_serving = Serving.TestCase
