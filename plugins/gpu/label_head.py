"""The label head's kernels: spans of the vocabulary folded, then merged; know no launch."""

import triton
import triton.language as tl

from plugins.gpu.tiles import FLOOR, capped_logits

LARGEST, SUM, WEIGHTED, ARGMAX = (tl.constexpr(field) for field in range(4))
"""Fields of a span's fold [4, spans, rows], of logits relative to the largest; ids are bits."""

FIELDS = 4
"""How many those are."""


@triton.jit
def peak_of(logits, identity, vocabulary):
    """(largest, its lowest id) of each row of a tile; a NaN is passed over, and never chosen.

    Ids ascend, so a row of nothing but NaN gets the tile's first.
    """
    usable = (identity < vocabulary)[None, :] & (logits > float("-inf"))
    clean = tl.where(usable, logits, FLOOR)
    largest = tl.max(clean, 1)
    ids = tl.where(clean == largest[:, None], identity[None, :], 2147483647)
    return largest, tl.min(ids, 1)


@triton.jit
def _pick(logits, first_id, labels, label_logits, row, counts, plan: tl.constexpr):
    """Stores the logits of the labels in a tile; most tiles hold none and are passed over."""
    IDS: tl.constexpr = plan.ids
    LABELS: tl.constexpr = plan.labels
    rows, label_count = counts
    start = row.to(tl.int64) * label_count
    lane = tl.arange(0, IDS)
    for first in range(0, label_count, LABELS):
        index = first + tl.arange(0, LABELS)
        known = (row < rows)[:, None] & (index < label_count)[None, :]
        some = tl.load(labels + start[:, None] + index[None, :], known, -1) - first_id
        held = (some >= 0) & (some < IDS)
        if tl.max(tl.max(held.to(tl.int32), 1), 0) > 0:
            for label in range(first, tl.minimum(first + LABELS, label_count)):
                at = tl.load(labels + start + label, row < rows, -1) - first_id
                hit = at[:, None] == lane[None, :]
                value = tl.sum(tl.where(hit, logits, 0.0), 1)
                tl.store(label_logits + start + label, value, (at >= 0) & (at < IDS))


@triton.jit
def _pad(labels, label_logits, row, counts):
    """Stores -inf for the padding among the labels."""
    rows, label_count = counts
    start = row.to(tl.int64) * label_count
    for label in range(0, label_count):
        padding = (row < rows) & (tl.load(labels + start + label, row < rows, 0) < 0)
        nothing = tl.full(row.shape, float("-inf"), tl.float32)
        tl.store(label_logits + start + label, nothing, padding)


@triton.jit(do_not_specialize=["rows", "label_count"])
def label_fold_kernel(
    hidden, embedding, labels, rows, label_count, label_logits, folds, plan: tl.constexpr
):
    """One span for a block of rows; grid: plan.grid.

    hidden [R, H], embedding [V, H], labels [rows, label_count] int32 with padding below 0. Every
    entry of `label_logits` [R, L] is written once; `folds` is [FIELDS, spans, R] fp32.
    """
    ROWS: tl.constexpr = plan.rows
    IDS: tl.constexpr = plan.ids
    span = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if span == 0:
        _pad(labels, label_logits, row, (rows, label_count))
    largest = tl.full([ROWS], FLOOR, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS], tl.float32)
    argmax = tl.full([ROWS], 0, tl.int32) + span * plan.span * IDS
    for tile in range(span * plan.span, tl.minimum((span + 1) * plan.span, plan.tiles)):
        identity = tile * IDS + tl.arange(0, IDS)
        logits = capped_logits(hidden, embedding, row, identity, rows, plan)
        _pick(logits, tile * IDS, labels, label_logits, row, (rows, label_count), plan)
        peak, at = peak_of(logits, identity, plan.vocabulary)
        argmax = tl.where(peak > largest, at, argmax)
        higher = tl.maximum(largest, peak)
        moved = largest - higher
        fade = tl.exp(moved)
        known = (identity < plan.vocabulary)[None, :]
        distance = tl.where(known, logits - higher[:, None], 0.0)
        power = tl.where(known, tl.exp(distance), 0.0)
        weighted = fade * (weighted + moved * total) + tl.sum(power * distance, 1)
        total = fade * total + tl.sum(power, 1)
        largest = higher
    to = folds + span * rows + row
    field = plan.spans * rows
    tl.store(to + LARGEST * field, largest, row < rows)
    tl.store(to + SUM * field, total, row < rows)
    tl.store(to + WEIGHTED * field, weighted, row < rows)
    tl.store(to + ARGMAX * field, argmax.to(tl.float32, bitcast=True), row < rows)


@triton.jit(do_not_specialize=["rows"])
def label_merge_kernel(folds, rows, lse, entropy, argmax, plan: tl.constexpr):
    """lse, entropy and argmax [R] of `folds`; a program per row. The lowest id wins a tie."""
    row = tl.program_id(0)
    span = tl.arange(0, plan.span_slots)
    held = span < plan.spans
    at = folds + span * rows + row
    field = plan.spans * rows
    largest = tl.load(at + LARGEST * field, held, FLOOR)
    peak = tl.max(largest, 0)
    ids = tl.load(at + ARGMAX * field, held, 0.0).to(tl.int32, bitcast=True)
    best = tl.min(tl.where(held & (largest == peak), ids, 2147483647), 0)
    moved = largest - peak
    share = tl.exp(moved)
    sums = tl.load(at + SUM * field, held, 0.0)
    total = tl.sum(share * sums, 0)
    weighted = tl.load(at + WEIGHTED * field, held, 0.0)
    mean = tl.sum(share * (weighted + moved * sums), 0) / total
    tl.store(lse + row, peak + tl.log(total))
    tl.store(entropy + row, tl.log(total) - mean)
    tl.store(argmax + row, best)
