"""What running requests have yet to take: the sum is right whenever it is asked for, and cheap."""

import pytest

from tests.triton_backend.fakes import make_generation, make_limits, make_request
from tests.triton_backend.serving import Server
from triton_backend import claims
from triton_backend.kv_cache import Need
from triton_backend.needs import claim
from triton_backend.paging import Paging


@pytest.mark.parametrize("host", [0, 40])
def test_the_sum_is_that_of_the_running_requests_whenever_one_is_started(monkeypatch, host):
    asked = [make_generation(key, prompt=4 + key, max_tokens=24) for key in range(8)]
    server = Server(*asked, pages=24, host=host, limits=make_limits(tokens=24))
    running, kv = server.scheduler._running, server.scheduler.kv
    ask, seen = Paging._has_claims, []

    def checked(paging, progress):
        answer = ask(paging, progress)
        if own := [claim(one, kv, 24) for one in running]:
            seen.append(len(own))
            wanted = Need(sum(need.full for need in own), sum(need.sliding for need in own))
            assert paging._claims.total == wanted
        return answer

    monkeypatch.setattr(Paging, "_has_claims", checked)
    server.drain()
    assert server.counters.preemptions
    assert max(seen) > 2


def test_starting_many_requests_in_one_step_asks_each_a_few_times_at_most(monkeypatch):
    asked, many = [], 60
    monkeypatch.setattr(claims, "claim", lambda one, *rest: asked.append(one) or claim(one, *rest))
    limits = make_limits(tokens=2000, segments=1000, output_rows=1000)
    server = Server(*(make_request(key) for key in range(many)), pages=1000, limits=limits)
    server.scheduler.schedule(0.0)
    assert server.scheduler.num_running == many
    assert len(asked) <= 4 * many
