"""Every request gets exactly one reply: served, refused, cancelled, stopped or failed by us."""

import random
import threading
import time

import pytest

from tests.triton_backend.fakes import (
    FakeRunner,
    given_log_probs,
    lone_log_probs,
    make_limits,
    make_request,
    make_scheduler,
    pool_sizes,
)
from triton_backend.core import ErrorKind, RequestError
from triton_backend.execute import run
from triton_backend.loop import MOST_FAILURES, EngineLoop
from triton_backend.outbox import Outbox
from triton_backend.watch import Watch


class FakeClient:
    def __init__(self):
        self.replies = []
        self.gone = False
        self._answered = threading.Event()

    def send(self, reply):
        self.replies.append(reply)
        self._answered.set()

    def is_cancelled(self):
        return self.gone

    def reply(self, seconds=10):
        assert self._answered.wait(seconds), "no reply"
        return self.replies[0]


class Engine:
    """A loop over the fake runner whose steps can be held and made to fail."""

    def __init__(self, max_queue_size=100, **options):
        self.scheduler = make_scheduler(**options)
        self.runner = FakeRunner()
        self.runner.create_pools(*pool_sizes(self.scheduler))
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.failure, self.fails_once = None, False
        self.published = 0
        self.outbox = Outbox()
        self.loop = EngineLoop(
            self.scheduler, self.execute, self.outbox, self.publish, max_queue_size
        )

    def execute(self, step):
        self.entered.set()
        assert self.gate.wait(10)
        if (failure := self.failure) is not None:
            self.failure = None if self.fails_once else failure
            raise failure
        return run(self.runner, step)

    def publish(self):
        self.published += 1

    def submit(self, key, **sizes):
        client = FakeClient()
        self.loop.submit(make_request(key, **sizes), client)
        return client

    def close(self, patience=10.0):
        self.gate.set()
        self.loop.stop(patience)
        self.outbox.close()


@pytest.fixture
def engine():
    made = Engine(limits=make_limits(tokens=16))
    made.loop.start(lambda: None)
    yield made
    made.close()


def eventually(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def test_a_request_is_served(engine):
    request = make_request(1)
    client = FakeClient()
    engine.loop.submit(request, client)
    reply = client.reply()
    assert abs(given_log_probs(request, reply.reads[0]) - lone_log_probs(request)).max() < 1e-5
    assert reply.timing.queue >= 0
    eventually(lambda: engine.scheduler.counters.ok == 1)


def test_requests_that_arrive_during_a_step_share_the_next(engine):
    engine.gate.clear()
    first = engine.submit(0)
    engine.entered.wait(5)
    others = [engine.submit(key, prompt=2, width=2) for key in range(1, 5)]
    engine.gate.set()
    assert first.reply().executions == 1
    assert [client.reply().executions for client in others] == [1] * 4
    assert len(engine.runner.steps) == 2


def test_a_full_queue_refuses_at_once_and_serves_on():
    engine = Engine(max_queue_size=2)
    engine.gate.clear()
    engine.loop.start(lambda: None)
    clients = [engine.submit(0)]
    engine.entered.wait(5)
    clients += [engine.submit(key) for key in (1, 2)]
    with pytest.raises(RequestError, match="2 waiting requests, max_queue_size is 2") as caught:
        engine.submit(3)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    engine.gate.set()
    assert all(client.reply().error is None for client in clients)
    engine.close()


def test_a_cancelled_request_is_answered_and_its_pages_come_back(engine):
    engine.gate.clear()
    running, waiting = engine.submit(1, prompt=30), engine.submit(2)
    engine.entered.wait(5)
    engine.loop.cancel(1)
    engine.loop.cancel(2)
    engine.loop.cancel(99)
    engine.gate.set()
    assert {client.reply().error.kind for client in (running, waiting)} == {ErrorKind.CANCELLED}
    eventually(lambda: engine.scheduler.counters.cancelled == 2)
    assert engine.scheduler.kv.full.num_used == 0


def test_a_client_that_leaves_is_noticed(engine):
    engine.gate.clear()
    client = engine.submit(1, prompt=30)
    watch = Watch(engine.loop)
    client.gone = True
    time.sleep(0.3)
    engine.gate.set()
    assert client.reply().error.kind is ErrorKind.CANCELLED
    watch.close()


def test_an_execution_that_fails_costs_its_own_requests_and_nobody_else():
    engine = Engine(limits=make_limits(tokens=24))
    engine.failure, engine.fails_once = OSError("a device is gone"), True
    engine.gate.clear()
    engine.loop.start(lambda: None)
    lost = [engine.submit(0)]
    engine.entered.wait(5)
    kept = [engine.submit(key) for key in range(2, 5)]
    engine.gate.set()
    for client in lost:
        assert client.reply().error.kind is ErrorKind.INTERNAL
        assert "a device is gone" in str(client.reply().error)
    assert all(client.reply().error is None for client in kept)
    assert engine.loop.ready
    engine.close()
    assert all(len(client.replies) == 1 for client in lost + kept)
    engine.scheduler.kv.audit()


def test_executions_that_fail_one_after_the_other_end_readiness_and_reach_every_client():
    engine = Engine(limits=make_limits(tokens=12))
    engine.failure = OSError("a device is gone")
    engine.gate.clear()
    engine.loop.start(lambda: None)
    clients = [engine.submit(key) for key in range(MOST_FAILURES + 2)]
    engine.gate.set()
    for client in clients:
        assert client.reply().error.kind is ErrorKind.INTERNAL
        assert "a device is gone" in str(client.reply().error)
    eventually(lambda: not engine.loop.ready)
    with pytest.raises(RequestError, match="its engine failed") as caught:
        engine.submit(9)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert engine.published
    engine.close()
    assert all(len(client.replies) == 1 for client in clients)


def test_a_lost_page_ends_the_engine_at_once(monkeypatch):
    engine = Engine()
    engine.loop.start(lambda: None)
    monkeypatch.setattr(engine.scheduler.kv.full, "release", lambda pages: None)
    engine.submit(1).reply()
    eventually(lambda: not engine.loop.ready)
    engine.close()


def test_stopping_finishes_what_is_in_flight_and_takes_nothing_new(engine):
    engine.gate.clear()
    clients = [engine.submit(key) for key in range(5)]
    engine.entered.wait(5)
    stopper = threading.Thread(target=engine.loop.stop, args=(10.0,))
    stopper.start()
    eventually(lambda: not engine.loop.ready)
    with pytest.raises(RequestError, match="it is stopping"):
        engine.submit(9)
    engine.gate.set()
    stopper.join()
    assert all(client.reply().error is None for client in clients)


def test_stopping_answers_what_it_cannot_finish_in_time():
    engine = Engine(limits=make_limits(tokens=16))
    engine.gate.clear()
    engine.loop.start(lambda: None)
    clients = [engine.submit(key, prompt=40) for key in range(3)]
    engine.entered.wait(5)
    release = threading.Timer(0.3, engine.gate.set)
    release.start()
    engine.loop.stop(patience=0.05)
    engine.outbox.close()
    assert {client.reply().error.kind for client in clients} == {ErrorKind.UNAVAILABLE}


def test_what_fails_before_serving_is_raised_where_serving_was_asked_for():
    engine = Engine()

    def prepare():
        raise ValueError("no use")

    with pytest.raises(ValueError, match="no use"):
        engine.loop.start(prepare)
    assert not engine.loop.ready
    engine.close()


def test_idle_time_is_published_and_costs_no_turns(engine):
    engine.submit(1).reply()
    eventually(lambda: not engine.scheduler.has_work)
    time.sleep(0.05)
    before = engine.published
    time.sleep(0.3)
    assert engine.published == before


def test_a_refusal_is_counted_without_any_request(engine):
    engine.loop.refuse(RequestError("slots", "has 0 positions"))
    eventually(lambda: engine.scheduler.counters.failed == 1)


def test_many_threads_get_one_reply_each_while_some_cancel():
    engine = Engine(max_queue_size=500, pages=24, limits=make_limits(tokens=20))
    engine.loop.start(lambda: None)
    clients = {}
    lock = threading.Lock()

    def work(worker):
        draw = random.Random(worker)
        for n in range(25):
            key = worker * 100 + n
            client = engine.submit(key, prompt=draw.randrange(30), width=draw.randrange(1, 5))
            with lock:
                clients[key] = client
            if draw.random() < 0.3:
                engine.loop.cancel(key)
            if draw.random() < 0.3:
                client.reply()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for client in clients.values():
        error = client.reply().error
        assert error is None or error.kind is ErrorKind.CANCELLED
    engine.close()
    assert len(clients) == 200
    assert all(len(client.replies) == 1 for client in clients.values())
    engine.scheduler.kv.audit()
    assert engine.scheduler.kv.full.num_used == 0
