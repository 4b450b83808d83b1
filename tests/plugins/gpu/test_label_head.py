"""The GPU's label head, interpreted, against a log-softmax over the whole vocabulary."""

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.spec import NO_LABEL
from tests.plugins.test_label_head import make

OP = "plugins.gpu.heads_op.label_head"
# Logits up to 30 in size carry a unit in the last place of 2e-6; sums in another order and a
# hyperbolic tangent good to 2e-7 of the cap add a few.
CLOSE = {"atol": 2e-5, "rtol": 1e-5}

SIZES = [(1, 1), (3, 7), (32, 63), (33, 64), (1, 65), (16, 127), (17, 128), (2, 129), (65, 300)]
# fp16 has the tiles of bf16.
CASES = [
    *((*size, dtype) for size in SIZES for dtype in (torch.float32, torch.bfloat16)),
    *((*size, torch.float16) for size in SIZES[-2:]),
]


def check(interpreter, arguments: list) -> tuple[Tensor, ...]:
    """Products of bf16 and fp16 values are exact in fp32, so every type is held to the same."""
    ours, theirs = interpreter.run(OP, *arguments), reference.label_head(*arguments)
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected, **CLOSE)
    return ours


@pytest.mark.parametrize(("rows", "vocabulary", "dtype"), CASES)
def test_the_head_equals_a_log_softmax(interpreter, rows, vocabulary, dtype):
    """Around tiles of rows and of ids, in each type."""
    hidden, table, *rest = make(rows, vocabulary)
    check(interpreter, [hidden.to(dtype), table.to(dtype), *rest])


@pytest.mark.parametrize("hidden", [2, 30, 64, 100])
def test_any_hidden_size(interpreter, hidden):
    check(interpreter, make(5, 200, hidden))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 10.0, 100.0])
def test_flat_and_saturated_logits(interpreter, scale):
    """Entropy runs from log(vocabulary) to zero."""
    check(interpreter, make(6, 300, scale=scale))


def test_spans_of_several_tiles_are_merged_in_order(interpreter):
    """More tiles than spans: 17,000 ids in tiles of 64 are 266, two a span."""
    check(interpreter, make(2, 17_000, hidden=8))


@pytest.mark.parametrize("ids", [[5, 9], [63, 64], [70, 71, 290], [299]])
def test_the_lowest_id_wins_a_tie(interpreter, ids):
    hidden, table, labels, softcap = make(1, 300)
    table[:] = 0
    table[ids] = hidden[0]
    assert interpreter.run(OP, hidden, table, labels, softcap)[3].tolist() == [ids[0]]


def test_padding_labels_are_minus_infinity_and_repeats_are_kept(interpreter):
    hidden, table, _, softcap = make(2, 300)
    labels = torch.full((2, 20), NO_LABEL, dtype=torch.int32)
    labels[0, [1, 2, 19]] = torch.tensor([7, 7, 299], dtype=torch.int32)
    label_logits = check(interpreter, [hidden, table, labels, softcap])[0]
    assert label_logits[0].isfinite().nonzero().flatten().tolist() == [1, 2, 19]
    assert label_logits[1].isinf().all()


def test_no_labels_and_no_rows(interpreter):
    hidden, table, labels, softcap = make(3, 100)
    assert interpreter.run(OP, hidden, table, labels[:, :0], softcap)[0].shape == (3, 0)
    nothing = interpreter.run(OP, hidden[:0], table, labels[:0], softcap)
    assert [list(out.shape) for out in nothing] == [[0, 5], [0], [0], [0]]


def test_a_broken_row_is_not_hidden_and_disturbs_no_other(interpreter):
    arguments = make(3, 200)
    whole = interpreter.run(OP, *arguments)
    arguments[0][1, 3] = torch.nan
    found = interpreter.run(OP, *arguments)
    assert found[1].isnan().tolist() == found[2].isnan().tolist() == [False, True, False]
    assert 0 <= found[3][1] < 200
    for ours, theirs in zip(found, whole, strict=True):
        assert torch.equal(ours[[0, 2]], theirs[[0, 2]])


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, lambda hidden: hidden[:, :60], "width and type"),
        (1, lambda table: table.bfloat16(), "width and type"),
        (1, lambda table: table[:0], "have rows"),
        (3, lambda softcap: 0.0, "softcap"),
    ],
)
def test_a_bad_argument_is_refused(interpreter, index, change, message):
    arguments = make(3, 100)
    arguments[index] = change(arguments[index])
    with pytest.raises(ValueError, match=message):
        interpreter.run(OP, *arguments)
