"""Two groups of pages: what a window has left behind goes, equal prefixes are kept once."""

import pytest

from plugins.spec import NO_PAGE
from triton_backend.kv_cache import KvCache, KvShape, Need

PAGE, WINDOW = 4, 8


def make_kv(pages=32, sliding=None, window=WINDOW, reuse=True) -> KvCache:
    return KvCache(KvShape(PAGE, window, pages, sliding or pages), reuse)


def compute(kv, sequence, ids, upto, chunk=5):
    while sequence.computed < upto:
        tokens = min(chunk, upto - sequence.computed)
        kv.extend(sequence, tokens)
        kv.advance(sequence, ids, tokens)
        kv.audit()


def serve(kv, ids, salt="", chunk=5):
    """Computes a prompt and lets go of it; the positions that were known already."""
    sequence = kv.open(ids, salt)
    known = sequence.computed
    compute(kv, sequence, ids, len(ids), chunk)
    kv.close(sequence)
    return known


def ids(*parts):
    return tuple(token for part in parts for token in part)


@pytest.mark.parametrize("computed", range(1, 24))
def test_the_sliding_group_holds_what_the_next_row_and_a_branch_see_and_no_page_more(computed):
    kv = make_kv(reuse=False)
    sequence = kv.open((), "")
    compute(kv, sequence, tuple(range(computed)), computed)
    whole = computed // PAGE * PAGE
    seen = range(max(whole - (WINDOW - 1), 0), computed)
    for index, page in enumerate(sequence.sliding):
        wanted = any(position // PAGE == index for position in seen)
        assert (page != NO_PAGE) == wanted
    assert kv.sliding.num_used == sum(page != NO_PAGE for page in sequence.sliding)
    assert kv.full.num_used == len(sequence.full) == -(-computed // PAGE)


def test_layers_without_a_window_keep_everything_and_without_full_ones_still_count():
    kv = make_kv(window=0, reuse=False)
    sequence = kv.open((), "")
    compute(kv, sequence, tuple(range(21)), 21)
    assert kv.sliding.num_used == 1, "no sliding layer, so nothing behind the last page is seen"
    assert kv.full.num_used == 6


def test_a_prompt_is_known_page_by_page_and_no_further():
    kv = make_kv()
    assert serve(kv, ids(range(10))) == 0
    assert serve(kv, ids(range(10))) == 8
    assert serve(kv, ids(range(9), [99])) == 8
    assert serve(kv, ids(range(5), [99] * 5)) == 4
    assert serve(kv, ids([99], range(9))) == 0


def test_a_salt_shares_with_nobody_else():
    kv = make_kv()
    assert serve(kv, ids(range(8)), "a") == 0
    assert serve(kv, ids(range(8)), "b") == 0
    assert serve(kv, ids(range(8)), "a") == 8


def test_seventeen_prompts_behind_one_preamble_find_it_sixteen_times():
    """The few-shot measure: 256 tokens, 17 requests, so 16 * 256 tokens are not computed again."""
    kv = KvCache(KvShape(16, 64, 512, 512))
    known = [serve(kv, ids(range(256), [1000 + n] * 30), chunk=64) for n in range(17)]
    assert known == [0] + [256] * 16


def test_a_hit_needs_the_window_behind_it():
    """The sliding pages are given away: the prefix is known, but cannot be gone on from."""
    kv = make_kv(pages=32, sliding=6)
    serve(kv, ids(range(16)))
    kv.prefixes.free_sliding(6)
    assert serve(kv, ids(range(16))) == 0
    assert serve(kv, ids(range(16))) == 16, "computed again, it is whole again"


def test_a_hit_in_the_middle_of_a_long_prompt_needs_the_window_there():
    kv = make_kv(pages=64, sliding=64)
    serve(kv, ids(range(40)))
    assert serve(kv, ids(range(24), [99] * 8)) == 24
    tight = make_kv(pages=64, sliding=4)
    serve(tight, ids(range(40)))
    known = serve(tight, ids(range(24), [99] * 8))
    assert known < 24, "what the window has left went to the pages behind it"


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_beginning():
    kv = make_kv(pages=6, sliding=6)
    serve(kv, ids(range(8)))
    serve(kv, ids([50] * 8))
    serve(kv, ids(range(8)))
    assert kv.full.num_idle == 4
    serve(kv, ids([70] * 12))
    assert kv.open(ids(range(8)), "").computed == 8
    assert kv.open(ids([50] * 8), "").computed == 4


def test_what_a_running_request_holds_is_never_given_away():
    kv = make_kv(pages=4, sliding=4)
    held = kv.open(ids(range(8)), "")
    compute(kv, held, ids(range(8)), 8)
    other = kv.open(ids([9] * 8), "")
    compute(kv, other, ids([9] * 8), 8)
    assert not kv.can(Need(1, 0))
    kv.close(other)
    assert kv.available.full == 2
    kv.prefixes.free_full(4)
    assert kv.full.num_free == 2
    assert kv.open(ids(range(8)), "").computed == 8


def test_equal_prompts_computed_side_by_side_end_up_on_the_same_pages():
    kv = make_kv()
    prompt = ids(range(12))
    first, second = kv.open(prompt, ""), kv.open(prompt, "")
    for sequence in (first, second):
        compute(kv, sequence, prompt, 12)
    assert first.full == second.full
    assert first.sliding == second.sliding
    assert kv.full.num_used == 3


@pytest.mark.parametrize("tokens", [3, 4, 7, 8, 13, 20])
def test_a_branch_holds_the_whole_pages_of_its_context_and_starts_behind_them(tokens):
    kv = make_kv()
    context = ids(range(tokens))
    parent = kv.open(context, "")
    compute(kv, parent, context, tokens)
    branch = kv.branch(parent, tokens)
    assert branch.computed == tokens // PAGE * PAGE
    own = (*context[branch.computed :], 90, 91)
    kv.extend(branch, len(own))
    assert set(branch.full[: tokens // PAGE]) <= set(parent.full)
    assert not set(branch.full[tokens // PAGE :]) & set(parent.full)
    seen = range(max(branch.computed - (WINDOW - 1), 0), branch.computed)
    assert all(branch.sliding[position // PAGE] != NO_PAGE for position in seen)
    kv.advance(branch, (*context, 90, 91), len(own))
    kv.close(branch)
    kv.close(parent)
    kv.audit()
    assert kv.full.num_used == kv.sliding.num_used == 0
    assert kv.open((*context, 90, 91), "").computed == tokens // PAGE * PAGE


def test_scratch_pages_never_enter_the_cache():
    kv = make_kv()
    pages = kv.scratch(7)
    assert len(pages.full) == len(pages.sliding) == 2
    kv.drop(pages)
    assert (kv.full.num_idle, kv.full.num_used) == (0, 0)
    assert len(kv.prefixes) == 0


def test_switched_off_nothing_is_kept():
    kv = make_kv(reuse=False)
    assert [serve(kv, ids(range(8))) for _ in range(2)] == [0, 0]
    assert kv.full.num_free == kv.full.total
