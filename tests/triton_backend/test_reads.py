"""Raw head outputs become distributions that add up and are finite on the wire."""

import numpy as np
import pytest

from triton_backend.core import ErrorKind, RequestError
from triton_backend.reads import PADDING_LOG_PROB, read_slots, take_rows
from triton_backend.runner import HeadOutput


def head_of(logits, labels):
    """Head outputs of whole rows of logits, as an engine gives them for some labels."""
    logits = np.asarray(logits, np.float64)
    lse = np.log(np.exp(logits).sum(1))
    probs = np.exp(logits - lse[:, None])
    picked = np.array(
        [
            [row[i] if i >= 0 else -np.inf for i in ids]
            for row, ids in zip(logits, labels, strict=True)
        ]
    )
    return HeadOutput(
        picked.astype(np.float32),
        lse.astype(np.float32),
        -(probs * np.log(probs)).sum(1).astype(np.float32),
        logits.argmax(1).astype(np.int32),
    )


def test_numbers_equal_softmax_over_the_whole_vocabulary_and_over_the_labels():
    logits = np.random.default_rng(0).normal(size=(2, 50)) * 5
    labels = [[3, 49, 0], [7, 8, -1]]
    read = read_slots(head_of(logits, labels), np.array([3, 2]))
    log_softmax = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert np.allclose(read.log_probs[0], log_softmax[0, [3, 49, 0]], atol=1e-5)
    assert np.allclose(read.log_probs[1, :2], log_softmax[1, [7, 8]], atol=1e-5)
    mass = [np.exp(log_softmax[0, [3, 49, 0]]).sum(), np.exp(log_softmax[1, [7, 8]]).sum()]
    assert np.allclose(read.label_mass, mass, atol=1e-6)
    assert np.allclose(read.probs.sum(1), 1, atol=1e-6)
    assert np.allclose(read.probs[1, 0] / read.probs[1, 1], np.exp(logits[1, 7] - logits[1, 8]))
    assert read.argmax.tolist() == logits.argmax(1).tolist()


def test_a_padding_label_is_finite_and_has_no_probability():
    read = read_slots(head_of(np.zeros((1, 4)), [[1, -1]]), np.array([1]))
    assert read.log_probs[0, 1] == PADDING_LOG_PROB
    assert read.probs.tolist() == [[1.0, 0.0]]
    assert read.label_mass[0] == pytest.approx(0.25)


def test_labels_however_unlikely_keep_exact_numbers():
    """Probabilities that vanish in fp32 must still be told apart within the labels."""
    logits = np.full((1, 8), 30.0)
    logits[0, :2] = -30, -29
    read = read_slots(head_of(logits, [[0, 1]]), np.array([2]))
    assert read.log_probs[0] == pytest.approx([-61.79, -60.79], abs=0.01)
    assert read.probs[0] == pytest.approx([0.2689, 0.7311], abs=1e-4)


def test_rounding_never_gives_a_probability_above_one():
    head = HeadOutput(
        np.array([[10.000001]], np.float32), np.array([10.0], np.float32),
        np.array([-1e-7], np.float32), np.array([0], np.int32),
    )  # fmt: skip
    read = read_slots(head, np.array([1]))
    assert read.log_probs[0, 0] <= 0
    assert read.label_mass[0] <= 1
    assert read.entropy[0] >= 0


@pytest.mark.parametrize("field", ["label_logits", "lse", "entropy"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_an_error(field, bad):
    head = head_of(np.zeros((2, 4)), [[1, 2], [1, -1]])
    getattr(head, field)[1, ...] = bad
    with pytest.raises(RequestError, match="not finite") as caught:
        read_slots(head, np.array([2, 1]))
    assert caught.value.kind is ErrorKind.INTERNAL


def test_rows_and_columns_of_one_canvas_are_cut_out():
    head = head_of(np.random.default_rng(1).normal(size=(5, 6)), [[0, 1, 2]] * 5)
    cut = take_rows(head, slice(2, 4), 2)
    assert cut.label_logits.tolist() == head.label_logits[2:4, :2].tolist()
    assert cut.lse.tolist() == head.lse[2:4].tolist()
