"""The GPU attention, interpreted, against its reference: phases, edges, heads, types.

Segments do not meet, so one call holds many of them; what is compared says which one is off.
"""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.gpu.attention_plan import AttentionShape, plan_attention
from plugins.gpu.device import Gpu
from plugins.spec import Phase
from tests.plugins.attention_cases import PAGE, Case, Heads, Part, make_case

PREFILL, DENOISE, COMMIT = Phase
WINDOW = 24
OP = "plugins.gpu.attention_op.mixed_mask_paged_attention"

# fp32: scores of size one are sums of up to 512 products in another order than the reference's;
# each is off by a few units in the last place (1e-7), and a softmax average keeps that size.
# bf16 and fp16: powers round to the type before they meet the values, as on any tensor core, and
# the interpreter cuts bf16 off where a GPU rounds: a step (2^-8, 2^-11) of power and result.
TOLERANCE = {
    torch.float32: {"atol": 1e-5, "rtol": 1e-5},
    torch.bfloat16: {"atol": 1.6e-2, "rtol": 1.2e-2},
    torch.float16: {"atol": 2e-3, "rtol": 2e-3},
}

MIXED = [
    [Part(PREFILL, 0, 20), Part(DENOISE, 20, 16)],
    [Part(COMMIT, 37, 16), Part(DENOISE, 53, 9)],
    [Part(PREFILL, 33, 3)],
    [Part(DENOISE, 0, 16)],
]

HEADS = [
    *(Heads(2, 2, 16), Heads(4, 2, 32), Heads(3, 1, 40), Heads(2, 1, 64), Heads(4, 1, 128)),
    *(Heads(2, 1, 256), Heads(8, 1, 512)),
]
# fp16 has the tiles of bf16.
KINDS = [
    *product(HEADS, (torch.float32, torch.bfloat16)),
    *((heads, torch.float16) for heads in (HEADS[3], HEADS[-1])),
]


def check(interpreter, case: Case) -> None:
    theirs = case.arguments()
    expected = reference.mixed_mask_paged_attention(*theirs)
    out, ours = interpreter.call(OP, *case.arguments())
    for segment in range(len(case.segments)):
        rows = case.rows_of(segment)
        name = f"segment {case.segments[segment].tolist()}\n"
        torch.testing.assert_close(
            out[rows], expected[rows], **TOLERANCE[out.dtype], msg=lambda m, name=name: name + m
        )
    torch.testing.assert_close(out, expected, **TOLERANCE[out.dtype])
    torch.testing.assert_close(ours[3], theirs[3], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("phases", [(DENOISE,), (PREFILL, COMMIT)])
def test_every_page_edge_equals_the_reference(interpreter, phases, window):
    edges = [1, PAGE - 1, PAGE, PAGE + 1]
    places = zip(product([0, *edges], edges), cycle(phases), strict=False)
    requests = [[Part(phase, committed, count)] for (committed, count), phase in places]
    check(interpreter, make_case(requests, Heads(1, 1, 16), window))


@pytest.mark.parametrize("phase", Phase)
def test_every_window_edge_is_exact(interpreter, phase):
    edges = [WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 63, 64, 65]
    requests = [[Part(phase, committed, 9)] for committed in edges]
    check(interpreter, make_case(requests, Heads(2, 1, 16), WINDOW))


@pytest.mark.parametrize("window", [1, 2, PAGE, 1024])
def test_windows_of_any_size(interpreter, window):
    check(interpreter, make_case(MIXED, Heads(2, 1, 16), window=window))


@pytest.mark.parametrize(("heads", "dtype"), KINDS, ids=str)
def test_every_head_size_and_type_equals_the_reference(interpreter, heads, dtype):
    requests = [[Part(PREFILL, 0, 17), Part(DENOISE, 17, 8)], [Part(COMMIT, 30, 3)]]
    window = WINDOW if heads.width % 128 else 0
    check(interpreter, make_case(requests if heads.width == 512 else MIXED, heads, window, dtype))


def test_more_segments_than_are_looked_through_at_a_time(interpreter):
    requests = [[Part(Phase(row % 3), row % 5, 1)] for row in range(70)]
    check(interpreter, make_case(requests, Heads(1, 1, 16)))


def split_attention(interpreter, case: Case, splits: int) -> Tensor:
    """The call's output with keys in spans of one tile each."""
    q, k, v, pool, slots, segments, table, window = case.arguments()
    _, written = interpreter.call("plugins.gpu.attention_op.write_pages", k, v, pool, slots)
    shape = AttentionShape(q.shape[1], k.shape[1], q.shape[2], PAGE, window)
    plan = plan_attention(shape, "float32", Gpu(80))
    plan = replace(plan, splits=splits, span=plan.keys)
    return interpreter.run("plugins.gpu.attention_op.attend", q, written[2], segments, table, plan)


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("width", [16, 256])
def test_split_keys_are_merged_to_the_same(interpreter, width, window):
    """Spans that some rows see nothing of, and rows in no segment."""
    case = make_case(MIXED, Heads(2, 1, width), window)
    expected = reference.mixed_mask_paged_attention(*case.arguments())
    torch.testing.assert_close(
        split_attention(interpreter, case, 4), expected, **TOLERANCE[torch.float32]
    )


def test_two_canvases_over_the_same_prompt_pages(interpreter):
    case = make_case([[Part(DENOISE, 32, 16)], [Part(DENOISE, 32, 16)]], Heads(2, 1, 16))
    case.block_table[1, :2] = case.block_table[0, :2]
    check(interpreter, case)


def test_padding_segments_are_skipped_whatever_they_hold(interpreter):
    case = make_case([[Part(PREFILL, 0, 5)], [Part(DENOISE, 3, 4)]], Heads(2, 1, 16))
    padding = torch.tensor([[99, 0, 7, -3, 99]], dtype=torch.int32)
    one, other = case.segments.split(1)
    segments = torch.cat([padding, one, padding, other, padding])
    out = interpreter.run(OP, *replace(case, segments=segments).arguments())
    assert torch.equal(out, interpreter.run(OP, *case.arguments()))


def test_a_segment_alone_equals_itself_in_a_batch_bitwise(interpreter):
    case = make_case(MIXED, Heads(2, 1, 16), WINDOW)
    batch = interpreter.run(OP, *case.arguments())
    for request in ([0, 1], [2, 3], [4], [5]):
        lone = case.only(request)
        out = interpreter.run(OP, *lone.arguments())
        for index, segment in enumerate(request):
            assert torch.equal(out[lone.rows_of(index)], batch[case.rows_of(segment)])


def test_strided_queries_keys_and_values(interpreter):
    case = make_case(MIXED, Heads(2, 1, 16))
    q, k, v = torch.cat([case.q, case.k, case.v], dim=1).split([2, 1, 1], dim=1)
    strided = interpreter.run(OP, *replace(case, q=q, k=k, v=v).arguments())
    assert torch.equal(strided, interpreter.run(OP, *case.arguments()))


def test_large_scores_do_not_overflow(interpreter):
    case = make_case(MIXED, Heads(2, 1, 16))
    case = replace(case, q=case.q * 300)
    out = interpreter.run(OP, *case.arguments())
    expected = reference.mixed_mask_paged_attention(*case.arguments())
    torch.testing.assert_close(out, expected, atol=2e-3, rtol=1e-3)


def test_no_rows_and_no_segments(interpreter):
    case = make_case([[Part(PREFILL, 0, 5)]], Heads(2, 1, 16))
    nothing = replace(case, segments=case.segments[:0])
    assert not interpreter.run(OP, *nothing.arguments()).any()
    empty = {name: getattr(case, name)[:0] for name in ("q", "k", "v", "slots", "segments")}
    assert interpreter.run(OP, *replace(case, **empty).arguments()).shape == (0, 2, 16)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("q", lambda t: t[:, :, :8], "q, k, v have shapes"),
        ("v", lambda t: t[:-1], "q, k, v have shapes"),
        ("k", lambda t: t.bfloat16(), "of one type"),
        ("kv_pool", lambda t: t[:, :1], "kv_pool is"),
    ],
)
def test_a_bad_shape_or_type_is_refused(interpreter, name, change, message):
    case = make_case([[Part(PREFILL, 20, 5)]], Heads(2, 1, 16))
    with pytest.raises(ValueError, match=message):
        interpreter.run(OP, *replace(case, **{name: change(getattr(case, name))}).arguments())
