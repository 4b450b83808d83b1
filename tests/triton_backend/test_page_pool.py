"""Pages are free, held or idle in the cache, never two of these, never lost."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from triton_backend.page_pool import PagePool, pages_for


def test_pages_come_back_when_their_last_holder_leaves():
    pool = PagePool(3)
    pages = pool.allocate(2)
    pool.retain(pages[:1])
    pool.release(pages)
    assert (pool.num_free, pool.num_used) == (2, 1)
    pool.release(pages[:1])
    assert pool.num_free == 3
    pool.audit()


def test_asking_changes_nothing_and_more_than_free_is_refused():
    pool = PagePool(3)
    assert pool.can_allocate(3)
    assert not pool.can_allocate(4)
    assert pool.num_free == 3
    with pytest.raises(AssertionError, match="4 pages wanted, 3 free"):
        pool.allocate(4)


@pytest.mark.parametrize("wrong", ["release", "retain"])
def test_a_free_page_cannot_be_released_or_shared(wrong):
    pool = PagePool(2)
    with pytest.raises(AssertionError):
        getattr(pool, wrong)([0])


def test_a_lost_page_is_noticed():
    pool = PagePool(2)
    pool._free.pop()
    with pytest.raises(AssertionError):
        pool.check_integrity()


def test_a_cached_page_is_idle_once_nobody_holds_it_and_the_oldest_is_known():
    pool = PagePool(3)
    first, second = pool.allocate(2)
    pool.cache(first)
    pool.cache(second)
    pool.release([second, first])
    assert (pool.num_free, pool.num_idle, pool.num_used, pool.num_available) == (1, 2, 0, 3)
    assert pool.oldest_idle() == second
    pool.retain([second])
    pool.release([second])
    assert pool.oldest_idle() == first
    pool.forget(first)
    assert (pool.num_free, pool.num_idle) == (2, 1)
    pool.audit()


class Pages(RuleBasedStateMachine):
    """Owners take, share and leave; a cache keeps and forgets: what adds up must add up always."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(6)
        self.held: list[int] = []
        self.cached: set[int] = set()

    @rule(count=st.integers(0, 3))
    def allocate(self, count):
        if self.pool.can_allocate(count):
            self.held += self.pool.allocate(count)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        page = data.draw(st.sampled_from(self.held))
        self.held.remove(page)
        self.pool.release([page])

    @precondition(lambda self: self.held or self.cached)
    @rule(data=st.data())
    def share(self, data):
        page = data.draw(st.sampled_from(sorted({*self.held, *self.cached})))
        self.pool.retain([page])
        self.held.append(page)

    @precondition(lambda self: set(self.held) - self.cached)
    @rule(data=st.data())
    def cache(self, data):
        page = data.draw(st.sampled_from(sorted(set(self.held) - self.cached)))
        self.pool.cache(page)
        self.cached.add(page)

    @precondition(lambda self: self.cached)
    @rule(data=st.data())
    def forget(self, data):
        page = data.draw(st.sampled_from(sorted(self.cached)))
        self.pool.forget(page)
        self.cached.remove(page)

    @invariant()
    def adds_up(self):
        self.pool.audit()
        assert self.pool.num_used == len(set(self.held))
        assert self.pool.num_idle == len(self.cached - set(self.held))
        assert self.pool.num_free == 6 - len({*self.held, *self.cached})


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2)])
def test_pages_for_rounds_up(tokens, pages):
    assert pages_for(tokens, 16) == pages
