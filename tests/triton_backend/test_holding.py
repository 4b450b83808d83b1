"""Holding: a thing lives at least as long as it was promised to, and no longer than the next."""

import weakref

from triton_backend.holding import Holding


class Thing:
    pass


def test_a_thing_lives_for_its_seconds_and_goes_with_the_next_one():
    now = 0.0
    holding = Holding(seconds=5.0, clock=lambda: now)
    first = Thing()
    gone = weakref.ref(first)
    holding.hold(first)
    del first
    now = 4.9
    holding.hold(Thing())
    assert gone() is not None
    now = 5.0
    holding.hold(Thing())
    assert gone() is None
    assert len(holding) == 2


def test_release_lets_go_of_everything():
    holding = Holding(seconds=5.0)
    things = [Thing() for _ in range(3)]
    gone = [weakref.ref(thing) for thing in things]
    for thing in things:
        holding.hold(thing)
    del thing
    things.clear()
    holding.release()
    assert len(holding) == 0
    assert all(reference() is None for reference in gone)


def test_destructors_may_hold_things_themselves():
    """A destructor that comes back must not wait for the lock that it runs under."""
    now = 0.0
    holding = Holding(seconds=1.0, clock=lambda: now)

    class Returning:
        def __del__(self):
            holding.hold(Thing())

    holding.hold(Returning())
    now = 2.0
    holding.hold(Thing())
    assert len(holding) == 2
