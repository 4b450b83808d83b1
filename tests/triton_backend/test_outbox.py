"""Answers leave in order, on a thread of their own, whatever happens to one of them."""

import threading

from triton_backend.outbox import Outbox


def test_what_is_posted_is_delivered_in_order_before_close_returns():
    outbox, got = Outbox(), []
    for message in range(100):
        outbox.post(got.append, message)
    outbox.close()
    assert got == list(range(100))


def test_posting_does_not_wait_for_a_slow_client():
    outbox, gate = Outbox(), threading.Event()
    outbox.post(lambda _: gate.wait(5), None)
    outbox.post(lambda _: None, None)
    gate.set()
    outbox.close()


def test_one_failing_delivery_does_not_stop_the_next(caplog):
    outbox, got = Outbox(), []

    def fail(message):
        raise OSError("gone")

    outbox.post(fail, 1)
    outbox.post(got.append, 2)
    outbox.close()
    assert got == [2]
    assert "could not be delivered" in caplog.text
