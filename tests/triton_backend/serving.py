"""A scheduler over the fake runner, to be driven step by step, and what its answers must be."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.triton_backend.fakes import (
    FakeRunner,
    given_log_probs,
    lone_log_probs,
    make_scheduler,
    pool_sizes,
)
from triton_backend.core import Reply
from triton_backend.execute import run
from triton_backend.policy import Prefill

POLICY_CHOICES = {
    "fusion": st.booleans(),
    "reuse": st.booleans(),
    "prefill": st.sampled_from(Prefill),
    "fair": st.booleans(),
    "strict": st.booleans(),
}
"""What property tests draw a policy from."""


class Server:
    """A scheduler over the fake runner; requests may come between steps."""

    def __init__(self, *requests, **options):
        self.scheduler = make_scheduler(**options)
        self.runner = FakeRunner()
        self.runner.create_pools(*pool_sizes(self.scheduler))
        self.runner.create_host_pools(
            self.scheduler.host.full.total, self.scheduler.host.full.total
        )
        self.replies, self.steps, self.now = {}, [], 0.0
        for request in requests:
            self.add(request)

    @property
    def counters(self):
        return self.scheduler.counters

    def add(self, request):
        self.scheduler.add(request, self.now)

    def step(self):
        self.now += 1
        return self.finish(self.scheduler.schedule(self.now))

    def finish(self, step, seconds=None):
        """Runs a step, as if it took so long."""
        self.steps.append(step)
        result = run(self.runner, step)
        if seconds is not None:
            result = replace(result, seconds=seconds)
        for news in self.scheduler.record(step, result):
            if isinstance(news, Reply):
                assert news.request.key not in self.replies
                self.replies[news.request.key] = news
        return step

    def drain(self):
        while self.scheduler.has_work:
            self.step()
        self.scheduler.rest()
        self.scheduler.kv.audit()
        return self.replies

    def keys(self):
        return [{segment.key for segment in step.segments} for step in self.steps]


def written(request):
    return Server(request).drain()[request.key].written


def check_answers(replies):
    for reply in replies.values():
        assert reply.error is None
        if reply.written is not None:
            assert reply.written == written(reply.request)
        for n, read in enumerate(reply.reads):
            given = given_log_probs(reply.request, read, n)
            assert abs(given - lone_log_probs(reply.request, n)).max() < 1e-5
