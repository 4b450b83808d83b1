"""The attention's ONNX function, run by onnxruntime, against the op's reference."""

import pytest
import torch

from plugins import reference
from plugins.spec import Phase
from tests.plugins.attention_cases import PAGE, Case, Heads, Part, make_case

pytest.importorskip("onnxruntime")
from tests.plugins.onnx_ops import run

PREFILL, DENOISE, COMMIT = Phase
# fp32 sums of at most 64 products in another order than the reference's.
CLOSE = {"atol": 2e-6, "rtol": 1e-5}
NAMES = ("q", "k", "v", "kv_pool", "slots", "segments", "block_table")
MIXED = [
    [Part(PREFILL, 0, 90), Part(DENOISE, 90, 32)],
    [Part(COMMIT, 40, 16), Part(DENOISE, 56, 16)],
    [Part(DENOISE, 3, 16)],
    [Part(PREFILL, 30, 5)],
]


def check(case: Case) -> None:
    """Both outputs; the pool to the bit, what nobody wrote included."""
    arguments = case.arguments()
    given = dict(zip(NAMES, arguments[:7], strict=True))
    out, pool = run("mixed_mask_paged_attention", given, "f3 f5", window=case.window)
    torch.testing.assert_close(out, reference.mixed_mask_paged_attention(*arguments), **CLOSE)
    torch.testing.assert_close(pool, arguments[3], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("window", [0, 1, 16, 24])
@pytest.mark.parametrize("heads", [Heads(4, 2, 16), Heads(4, 1, 64)], ids=str)
def test_a_mixed_batch(window: int, heads: Heads) -> None:
    """Pages nobody reads hold NaN: one of them among the keys would show in every row."""
    check(make_case(MIXED, heads, window))


@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1])
@pytest.mark.parametrize("committed", [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_every_phase_at_page_boundaries(committed: int, count: int) -> None:
    for phase in Phase:
        check(make_case([[Part(phase, committed, count)]], Heads(4, 2, 16), window=20))


def test_rows_in_no_segment_stay_zero_and_are_not_written() -> None:
    case = make_case([[Part(PREFILL, 0, 3)]], Heads(4, 2, 16), padding=5)
    check(case)
    empty = torch.zeros(2, 5, dtype=torch.int32)
    padded = Case(**{**vars(case), "segments": torch.cat([case.segments, empty])})
    check(padded)


def test_the_pool_need_not_be_written_first() -> None:
    """`attend` takes rows of this execution from where they are: engines then only read pools."""
    case = make_case(MIXED, Heads(4, 2, 16), 24)
    given = dict(zip(NAMES, case.arguments()[:7], strict=True))
    rows = torch.stack([given.pop("k"), given.pop("v")], 1)
    lanes = torch.arange(int(case.segments[:, 1].max()) + 3)
    given = {"q": given.pop("q"), "rows": rows, **given, "lanes": lanes}
    (out,) = run("attend", given, "f3", window=case.window)
    expected = reference.mixed_mask_paged_attention(*case.arguments())
    torch.testing.assert_close(out, expected, **CLOSE)
