"""The label head against a log-softmax over the whole vocabulary."""

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.spec import NO_LABEL

SOFTCAP = 30.0
# Logits up to 30 in size carry a unit in the last place of 2e-6; sums in another order add a few.
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


def make(rows: int, vocabulary: int, hidden: int = 64, scale: float = 3.0) -> list:
    generator = torch.Generator().manual_seed(rows + vocabulary)
    table = torch.randn(vocabulary, hidden, generator=generator) * scale * hidden**-0.5
    labels = torch.randint(0, vocabulary, (rows, 5), generator=generator, dtype=torch.int32)
    labels[:, 4] = NO_LABEL
    return [torch.randn(rows, hidden, generator=generator), table, labels, SOFTCAP]


def check(arguments: list) -> tuple[Tensor, ...]:
    ours, theirs = torch.ops.dg.label_head(*arguments), reference.label_head(*arguments)
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected, **CLOSE)
    return ours


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 24, 25, 70])
@pytest.mark.parametrize("vocabulary", [1, 7, 255, 256, 257, 1000, 4096])
def test_the_head_equals_a_log_softmax(rows, vocabulary):
    check(make(rows, vocabulary))


@pytest.mark.parametrize("hidden", [2, 16, 30, 128, 500])
def test_any_hidden_size(hidden):
    check(make(5, 600, hidden))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 100.0])
def test_flat_and_saturated_logits(scale):
    """Entropy runs from log(vocabulary) to zero; far labels keep their logit."""
    arguments = make(6, 700, scale=scale)
    ours, theirs = torch.ops.dg.label_head(*arguments), reference.label_head(*arguments)
    for got, expected in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(got, expected, atol=5e-5, rtol=1e-5)


def test_bf16_rows_give_fp32_logits():
    """Products of bf16 values are exact in fp32, so only the order of sums differs."""
    hidden, table, labels, softcap = make(9, 900)
    check([hidden.bfloat16(), table.bfloat16(), labels, softcap])


def test_the_lowest_id_wins_a_tie():
    """Both within a tile and across tiles."""
    hidden, table, labels, softcap = make(3, 1000)
    table[:] = 0
    for ids in ([5, 9], [300, 301, 990], [999]):
        tied = table.clone()
        tied[ids] = hidden.sum(0)
        tied[ids] *= (hidden[0] @ tied[ids[0]]).sign()
        argmax = torch.ops.dg.label_head(hidden[:1], tied, labels[:1], softcap)[3]
        assert argmax.item() == ids[0]
    assert torch.ops.dg.label_head(hidden, table, labels, softcap)[3].tolist() == [0, 0, 0]


def test_the_least_likely_labels_keep_their_probability():
    hidden, table, labels, softcap = make(4, 3000, scale=12.0)
    logits = reference.label_head(
        hidden, table, torch.arange(3000, dtype=torch.int32).expand(4, -1), softcap
    )[0]
    labels[:, :4] = logits.topk(4, largest=False).indices.int()
    label_logits, lse, *_ = torch.ops.dg.label_head(hidden, table, labels, softcap)
    expected = torch.log_softmax(logits.double(), -1).gather(1, labels[:, :4].long())
    torch.testing.assert_close((label_logits[:, :4] - lse[:, None]).double(), expected, **CLOSE)


def test_padding_labels_are_minus_infinity_and_repeats_are_kept():
    hidden, table, labels, softcap = make(2, 300)
    labels[0] = torch.tensor([NO_LABEL, 7, 7, NO_LABEL, 299])
    label_logits = check([hidden, table, labels, softcap])[0]
    assert label_logits[0].isinf().tolist() == [True, False, False, True, False]
    assert label_logits[0, 1] == label_logits[0, 2]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_does_not_depend_on_the_others_bitwise(threads):
    hidden, table, labels, softcap = make(70, 3000)
    batch = torch.ops.dg.label_head(hidden, table, labels, softcap)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (slice(0, 1), slice(2, 4), slice(40, 70)):
            lone = torch.ops.dg.label_head(hidden[rows], table, labels[rows], softcap)
            assert all(torch.equal(a, b[rows]) for a, b in zip(lone, batch, strict=True))
    finally:
        torch.set_num_threads(before)


def test_a_broken_row_is_not_hidden():
    hidden, table, labels, softcap = make(3, 600)
    hidden[1, 3] = torch.nan
    _, lse, entropy, _ = torch.ops.dg.label_head(hidden, table, labels, softcap)
    assert lse.isnan().tolist() == entropy.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, lambda hidden: hidden[:, :60], r"embedding.size\(1\) is 64"),
        (0, lambda hidden: hidden.double(), "hidden is Double"),
        (1, lambda table: table.bfloat16(), "embedding is BFloat16"),
        (1, lambda table: table[:0], "embedding has no rows"),
        (1, lambda table: table.T.contiguous().T, "embedding has strides"),
        (2, lambda labels: labels.long(), "label_ids is Long"),
        (2, lambda labels: labels + 300, "label_ids holds"),
        (2, lambda labels: labels - 301, "label_ids holds -"),
        (2, lambda labels: labels[:1], r"label_ids.size\(0\) is 1"),
        (3, lambda softcap: 0.0, "softcap is 0"),
    ],
)
def test_a_bad_argument_is_named(index, change, message):
    arguments = make(3, 300)
    arguments[index] = change(arguments[index])
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dg.label_head(*arguments)
