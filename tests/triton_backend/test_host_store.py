"""Slots of host memory: taken with what they hold, free once the copies are done."""

from triton_backend.host_store import HostStore
from triton_backend.kv_cache import KvCache, KvShape

PAGE, WINDOW = 4, 8


def computed(tokens):
    """A cache, and a sequence in it of so many positions."""
    kv = KvCache(KvShape(PAGE, WINDOW, 32, 32), reuse=False)
    sequence = kv.open((), "")
    while sequence.computed < tokens:
        kv.extend(sequence, more := min(PAGE, tokens - sequence.computed))
        kv.advance(sequence, (), more)
    return kv, sequence


def test_a_context_comes_back_as_it_was_and_takes_no_page_before_its_window():
    kv, sequence = computed(22)
    host = HostStore(8, 8)
    swapped, saves = host.save(sequence)
    assert len(saves) == len(sequence.full) + len(sequence.sliding) - sequence.first
    shape = (sequence.computed, len(sequence.full), len(sequence.sliding), sequence.first)
    kv.close(sequence)
    again = kv.open((), "")
    assert kv.can_restore(again, swapped.computed, swapped.first)
    loads = host.load(swapped, again, kv)
    assert (again.computed, len(again.full), len(again.sliding), again.first) == shape
    assert [move.slot for move in loads] == [move.slot for move in saves]
    assert kv.sliding.num_used == len(again.sliding) - again.first
    kv.close(again)
    kv.audit()


def test_room_for_the_window_is_enough_in_the_sliding_group():
    kv, sequence = computed(30)
    swapped, _ = HostStore(8, 8).save(sequence)
    kv.close(sequence)
    window = len(swapped.sliding)
    tight = KvCache(KvShape(PAGE, WINDOW, len(swapped.full), window), reuse=False)
    assert tight.can_restore(tight.open((), ""), swapped.computed, swapped.first)
    small = KvCache(KvShape(PAGE, WINDOW, len(swapped.full), window - 1), reuse=False)
    assert not small.can_restore(small.open((), ""), swapped.computed, swapped.first)


def test_slots_are_given_again_only_after_the_step_that_copies_them():
    kv, sequence = computed(8)
    host = HostStore(2, 2)
    swapped, _ = host.save(sequence)
    host.retire(swapped)
    assert not host.can(sequence)
    host.settle()
    assert host.can(sequence)
    assert host.full.num_used == 0
