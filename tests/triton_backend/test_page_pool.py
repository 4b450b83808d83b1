"""Pages are free or held, never both, never lost."""

import pytest

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


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2)])
def test_pages_for_rounds_up(tokens, pages):
    assert pages_for(tokens, 16) == pages
