"""The denoise head's first two kernels: tiles of the vocabulary folded, then merged by chunks.

They know no launch, no torch and no soft embedding.
"""

import triton
import triton.language as tl

from plugins.gpu.draws import gumbel
from plugins.gpu.label_head import peak_of
from plugins.gpu.tiles import FLOOR, capped_logits

LARGEST, PLAIN, SUM, WEIGHTED = (tl.constexpr(field) for field in range(4))
ARGMAX, SCORE, CANDIDATE, CHOSEN, CARRY = (tl.constexpr(field) for field in range(4, 9))
"""Fields of a fold, of logits l and a temperature t: the largest l; sums of exp(l - largest), of
powers exp((l - largest) / t) and of powers times (l - largest) / t; the largest l's id; the largest
(l - largest) / t + Gumbel variate, its id and its l. Ids are bare bits. A state also has the factor
by which its last chunk made what went before smaller."""

FOLD_FIELDS = 8
STATE_FIELDS = 9

_ZERO_POWER = tl.constexpr(-1e4)
"""Where a power is zero anyway; zero times infinity would be NaN."""


@triton.jit
def _clamped(distance):
    return tl.where(distance < _ZERO_POWER, _ZERO_POWER, distance)


@triton.jit(do_not_specialize=["rows", "chunk"])
def denoise_fold_kernel(
    hidden, embedding, temperature, draws, rows, chunk, outputs, plan: tl.constexpr
):
    """One tile for a block of rows; grid (blocks, tiles of the chunk).

    hidden [R, H], embedding [V, H], temperature [R], draws [R, 3], the chunk's number. Outputs are
    (powers [R, chunk's width] relative to the tile's largest logit, folds [FOLD_FIELDS, chunk, R]).
    """
    ROWS: tl.constexpr = plan.rows
    IDS: tl.constexpr = plan.ids
    powers, folds = outputs
    tile = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first_id = (chunk * plan.chunk + tile) * IDS
    identity = first_id + tl.arange(0, IDS)
    known = (identity < plan.vocabulary)[None, :]
    logits = capped_logits(hidden, embedding, row, identity, rows, plan)
    inverse = 1 / tl.load(temperature + row, row < rows, 1.0)
    largest, argmax = peak_of(logits, identity, plan.vocabulary)
    distance = tl.where(known, logits - largest[:, None], 0.0)
    plain = tl.sum(tl.where(known, tl.exp(distance), 0.0), 1)
    colder = _clamped(distance * inverse[:, None])
    power = tl.where(known, tl.exp(colder), 0.0)
    noise = gumbel(draws, row, rows, first_id // 4 + tl.arange(0, IDS // 4))
    score, candidate = peak_of(colder + noise, identity, plan.vocabulary)
    chosen = tl.sum(tl.where(identity[None, :] == candidate[:, None], logits, 0.0), 1)
    width = row.to(tl.int64) * plan.width + tile * IDS
    inside = (row < rows)[:, None] & (tl.arange(0, IDS) < IDS)[None, :]
    to = powers + width[:, None] + tl.arange(0, IDS)[None, :]
    tl.store(to, power.to(powers.dtype.element_ty), inside)
    at = folds + tile * rows + row
    field = plan.chunk * rows
    tl.store(at + LARGEST * field, largest, row < rows)
    tl.store(at + PLAIN * field, plain, row < rows)
    tl.store(at + SUM * field, tl.sum(power, 1), row < rows)
    tl.store(at + WEIGHTED * field, tl.sum(power * colder, 1), row < rows)
    tl.store(at + ARGMAX * field, argmax.to(tl.float32, bitcast=True), row < rows)
    tl.store(at + SCORE * field, score, row < rows)
    tl.store(at + CANDIDATE * field, candidate.to(tl.float32, bitcast=True), row < rows)
    tl.store(at + CHOSEN * field, chosen, row < rows)


@triton.jit
def _best(values, bits, held, before, before_bits):
    """(largest value, its id, the place's mask) over a chunk's tiles and what went before them.

    What went before has the lower ids, so it wins a tie.
    """
    peak = tl.max(tl.where(held, values, FLOOR), 0)
    ids = tl.where(held & (values == peak), bits.to(tl.int32, bitcast=True), 2147483647)
    first = tl.min(ids, 0)
    later = peak > before
    best = tl.where(later, first, before_bits.to(tl.int32, bitcast=True))
    return tl.where(later, peak, before), best, tl.where(later, ids, -1) == first


@triton.jit(do_not_specialize=["rows", "chunk"])
def denoise_merge_kernel(
    folds, temperature, before, rows, chunk, state, factors, plan: tl.constexpr
):
    """Takes one chunk's folds into a row's state; a program per row.

    `state` [STATE_FIELDS, R] follows from that of the chunks before, perhaps the same memory and
    not read in chunk 0. `factors` [chunk, R] make powers relative to the largest logit so far.
    """
    row = tl.program_id(0)
    tile = tl.arange(0, plan.chunk_slots)
    held = tile < tl.minimum(plan.chunk, plan.tiles - chunk * plan.chunk)
    at = folds + tile * rows + row
    field = plan.chunk * rows
    old, kept = before + row, state + row
    begun = chunk > 0
    inverse = 1 / tl.load(temperature + row)
    tops = tl.load(at + LARGEST * field, held, FLOOR)
    top = tl.load(old + LARGEST * rows, begun, FLOOR)
    arg = tl.load(at + ARGMAX * field, held, 0.0)
    largest, argmax, _ = _best(tops, arg, held, top, tl.load(old + ARGMAX * rows, begun, 0.0))
    shift = _clamped((tops - largest) * inverse)
    moved = _clamped((top - largest) * inverse)
    factor = tl.exp(shift)
    carry = tl.exp(moved)
    tl.store(factors + tile * rows + row, factor, held)
    plain = tl.load(old + PLAIN * rows, begun, 0.0) * tl.exp(top - largest)
    plain += tl.sum(tl.exp(tops - largest) * tl.load(at + PLAIN * field, held, 0.0), 0)
    sums = tl.load(at + SUM * field, held, 0.0)
    old_sum = tl.load(old + SUM * rows, begun, 0.0)
    weights = tl.load(at + WEIGHTED * field, held, 0.0)
    weighted = carry * (tl.load(old + WEIGHTED * rows, begun, 0.0) + moved * old_sum)
    weighted += tl.sum(factor * (weights + shift * sums), 0)
    scores = tl.load(at + SCORE * field, held, FLOOR) + shift
    old_score = tl.load(old + SCORE * rows, begun, FLOOR) + moved
    drawn = tl.load(at + CANDIDATE * field, held, 0.0)
    old_drawn = tl.load(old + CANDIDATE * rows, begun, 0.0)
    score, candidate, place = _best(scores, drawn, held, old_score, old_drawn)
    logits = tl.load(at + CHOSEN * field, held, 0.0)
    chosen = tl.sum(tl.where(place, logits, 0.0), 0)
    old_chosen = tl.load(old + CHOSEN * rows, begun, 0.0)
    chosen = tl.where(tl.max(place.to(tl.int32), 0) > 0, chosen, old_chosen)
    tl.store(kept + LARGEST * rows, largest)
    tl.store(kept + PLAIN * rows, plain)
    tl.store(kept + SUM * rows, carry * old_sum + tl.sum(factor * sums, 0))
    tl.store(kept + WEIGHTED * rows, weighted)
    tl.store(kept + ARGMAX * rows, argmax.to(tl.float32, bitcast=True))
    tl.store(kept + SCORE * rows, score)
    tl.store(kept + CANDIDATE * rows, candidate.to(tl.float32, bitcast=True))
    tl.store(kept + CHOSEN * rows, chosen)
    tl.store(kept + CARRY * rows, carry)
