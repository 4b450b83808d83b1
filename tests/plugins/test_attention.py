"""The attention kernel against its reference: phases, page and window edges, heads, dtypes."""

import pytest
import torch

from plugins import reference
from plugins.spec import Phase
from tests.plugins.attention_cases import PAGE, Case, Heads, Part, make_case

PREFILL, DENOISE, COMMIT = Phase
WINDOW = 24

# fp32: scores of size one are sums of up to 512 products in another order than the reference's;
# each is off by a few units in the last place (1e-7), and a softmax average keeps that size.
FP32 = {"atol": 1e-5, "rtol": 1e-5}
# bf16: both sides accumulate in fp32 and round once, so they may differ by one bf16 step (2^-8).
BF16 = {"atol": 4e-3, "rtol": 1e-2}

MIXED = [
    [Part(PREFILL, 0, 40), Part(DENOISE, 40, 32)],
    [Part(COMMIT, 37, 16), Part(DENOISE, 53, 16)],
    [Part(DENOISE, 50, 24)],
    [Part(PREFILL, 33, 19)],
    [Part(DENOISE, 0, 16)],
]


def check(case: Case, **tolerance: float) -> None:
    ours, theirs = case.arguments(), case.arguments()
    out = torch.ops.dg.mixed_mask_paged_attention(*ours)
    expected = reference.mixed_mask_paged_attention(*theirs)
    torch.testing.assert_close(out, expected, **(tolerance or FP32))
    torch.testing.assert_close(ours[3], theirs[3], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 150])
@pytest.mark.parametrize("committed", [0, 1, PAGE - 1, PAGE, PAGE + 1, 130])
@pytest.mark.parametrize("phase", Phase)
def test_a_lone_segment_equals_the_reference(phase, committed, count, window):
    check(make_case([[Part(phase, committed, count)]], Heads(2, 1, 16), window))


@pytest.mark.parametrize("committed", [WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 127, 128, 129])
@pytest.mark.parametrize("phase", Phase)
def test_the_window_edge_is_exact(phase, committed):
    check(make_case([[Part(phase, committed, 9)]], Heads(2, 1, 16), WINDOW))


@pytest.mark.parametrize("window", [1, 2, PAGE, 1024])
def test_windows_of_any_size(window):
    check(make_case(MIXED, window=window))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize(
    "heads",
    [
        Heads(2, 2, 16),
        Heads(8, 4, 64),
        Heads(4, 1, 128),
        Heads(4, 2, 256),
        Heads(8, 1, 512),
        Heads(3, 3, 40),
    ],
)
def test_a_mixed_batch_equals_the_reference(heads, window, dtype):
    check(make_case(MIXED, heads, window, dtype), **(FP32 if dtype == torch.float32 else BF16))


def test_a_long_prompt_equals_the_reference():
    check(make_case([[Part(PREFILL, 100, 600), Part(DENOISE, 700, 64)]], Heads(4, 2, 32)))


def test_canvas_rows_see_the_prompt_of_the_same_execution():
    """Catches an order in which a segment attends before another one's rows are written."""
    case = make_case([[Part(PREFILL, 0, 20), Part(DENOISE, 20, 16)]])
    changed = case.v.clone()
    changed[0] += 1
    moved = Case(**{**vars(case), "v": changed}).run()
    assert not torch.equal(moved[20:36], case.run()[20:36])


def test_prompt_rows_never_see_canvas_rows():
    case = make_case([[Part(PREFILL, 0, 20), Part(DENOISE, 20, 16)]])
    changed = case.v.clone()
    changed[20:36] += 1
    moved = Case(**{**vars(case), "v": changed}).run()
    assert torch.equal(moved[:20], case.run()[:20])


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_segment_alone_equals_itself_in_a_batch_bitwise(window, threads):
    """Tiles of keys lie at fixed positions, so neighbours and threads change no sum."""
    case = make_case(MIXED, window=window)
    before = torch.get_num_threads()
    batch = case.run()
    torch.set_num_threads(threads)
    try:
        for request in ([0, 1], [2, 3], [4], [5], [6]):
            lone = case.only(request)
            out = lone.run()
            for index, segment in enumerate(request):
                assert torch.equal(out[lone.rows_of(index)], batch[case.rows_of(segment)])
    finally:
        torch.set_num_threads(before)


def test_two_canvases_over_the_same_prompt_pages():
    """Two table rows share their committed pages and differ in scratch."""
    one = make_case([[Part(DENOISE, 32, 16)], [Part(DENOISE, 32, 16)]])
    one.block_table[1, :2] = one.block_table[0, :2]
    check(one)


def test_padding_rows_write_nothing_and_output_zeros():
    case = make_case([[Part(PREFILL, 0, 5)]], padding=4)
    out = case.run()
    assert torch.equal(out[5:], torch.zeros_like(out[5:]))
    check(case)


def test_padding_segments_are_skipped_whatever_they_hold():
    case = make_case([[Part(PREFILL, 0, 5)]])
    padding = torch.tensor([[99, 0, 7, -3, 99]], dtype=torch.int32)
    padded = Case(**{**vars(case), "segments": torch.cat([case.segments, padding])})
    assert torch.equal(padded.run(), case.run())


def test_strided_queries_keys_and_values():
    case = make_case(MIXED)
    joined = torch.cat([case.q, case.k, case.v], dim=1)
    q, k, v = joined.split([4, 2, 2], dim=1)
    assert torch.equal(Case(**{**vars(case), "q": q, "k": k, "v": v}).run(), case.run())


def test_large_scores_do_not_overflow():
    case = make_case(MIXED)
    check(Case(**{**vars(case), "q": case.q * 300}), atol=2e-3, rtol=1e-3)


def edited(name: str, index: tuple[int, ...], value: int) -> Case:
    case = make_case([[Part(PREFILL, 20, 5)], [Part(DENOISE, 20, 5)]])
    tensor = getattr(case, name).clone()
    tensor[index] = value
    return Case(**{**vars(case), name: tensor})


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("slots", (0,), 10**6, r"slots\[0\] is 1000000"),
        ("slots", (1,), -2, r"slots\[1\] is -2"),
        ("segments", (0, 0), 9, "covers rows 9 \\+ 5"),
        ("segments", (1, 0), 4, "covers row 4, which another"),
        ("segments", (0, 1), -1, "row_count -1"),
        ("segments", (0, 2), 3, "phase 3"),
        ("segments", (0, 3), -1, "committed -1"),
        ("segments", (0, 3), 10**5, "of block_table; it has"),
        ("segments", (0, 4), 2, "table_row 2"),
        ("block_table", (0, 0), -1, r"block_table\[0\]\[0\] is -1"),
        ("block_table", (1, 2), 10**6, r"block_table\[1\]\[2\] is 1000000"),
    ],
)
def test_a_bad_index_is_refused_before_anything_is_written(name, index, value, message):
    arguments = edited(name, index, value).arguments()
    pool = arguments[3].clone()
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dg.mixed_mask_paged_attention(*arguments)
    torch.testing.assert_close(arguments[3], pool, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("q", lambda t: t[:, :3].contiguous(), "multiple of the heads"),
        ("k", lambda t: t.bfloat16(), "k is BFloat16"),
        ("v", lambda t: t[:-1], "v has shape"),
        ("kv_pool", lambda t: t.transpose(0, 1), "kv_pool"),
        ("kv_pool", lambda t: t.bfloat16(), "kv_pool is BFloat16"),
        ("slots", lambda t: t.int(), "slots is Int"),
        ("segments", lambda t: t[:, :4], "fields of a segment"),
        ("block_table", lambda t: t.long(), "block_table is Long"),
        ("window", lambda w: -1, "window is -1"),
    ],
)
def test_a_bad_shape_or_type_names_the_argument(name, change, message):
    case = make_case([[Part(PREFILL, 20, 5)]])
    with pytest.raises(RuntimeError, match=message):
        Case(**{**vars(case), name: change(getattr(case, name))}).run()
