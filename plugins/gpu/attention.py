"""The attention kernels: online softmax over paged keys, masks by phase; know no launch."""

import triton
import triton.language as tl

from plugins.gpu.segments import COMMITTED_AT, block_of, bounds, idle_share, uncovered
from plugins.gpu.tiles import FLOOR, multiply_add

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _scores(q, keys, there, alive, plan: tl.constexpr):
    """q @ k [rows, keys] by chunks of columns, where the whole of q would not fit beside v."""
    ROWS: tl.constexpr = plan.rows
    KEYS: tl.constexpr = plan.keys
    DEPTH: tl.constexpr = plan.depth
    WIDTH: tl.constexpr = plan.width
    total = tl.zeros([ROWS, KEYS], tl.float32)
    for start in range(0, WIDTH, DEPTH):
        column = start + tl.arange(0, DEPTH)
        inside = column < plan.shape.width
        left = tl.load(q[:, None] + column[None, :], alive[:, None] & inside[None, :], 0.0)
        right = tl.load(keys[None, :] + column[:, None], there[None, :] & inside[:, None], 0.0)
        total = multiply_add(left, right, total)
    return total


@triton.jit
def _fold(state, score, values_pointers, there, plan: tl.constexpr):
    """The softmax state (weighted values, sum, largest) after one more tile of scores and of v."""
    values, total, largest = state
    column = values_pointers[1]
    higher = tl.maximum(largest, tl.max(score, 1))
    power = tl.exp2(score - higher[:, None])
    fade = tl.exp2(largest - higher)
    inside = there[:, None] & (column < plan.shape.width)[None, :]
    tile = tl.load(values_pointers[0][:, None] + column[None, :], inside, 0.0)
    values = multiply_add(power.to(tile.dtype), tile, values * fade[:, None])
    return values, total * fade + tl.sum(power, 1), higher


@triton.jit
def _attend(q, pool, pages, table, segment, place, plan: tl.constexpr):
    """(weighted values, sum, largest score) of a block's rows over one span of positions.

    `q` are pointers [rows] at the heads' first columns, `table` points at the table row, `place` is
    block_of's. Scores are in units of log2(e), so that powers are of two.
    """
    ROWS: tl.constexpr = plan.rows
    KEYS: tl.constexpr = plan.keys
    PAGE: tl.constexpr = plan.shape.page
    WINDOW: tl.constexpr = plan.shape.window
    STRIDE: tl.constexpr = plan.shape.kv_heads * plan.shape.width
    VALUES: tl.constexpr = plan.values
    WHOLE: tl.constexpr = plan.depth == plan.width
    first_token, token, alive, head, begin, end, first_value, positions = place
    low, top, scratch, high, canvas = bounds(segment, first_token, positions, plan)
    position = tl.load(segment + COMMITTED_AT) + token
    row_top = tl.where(canvas, top, position + 1)
    row_low = tl.where(canvas, low, position + 1 - WINDOW)
    column = tl.arange(0, plan.width)
    if WHOLE:
        known = alive[:, None] & (column < plan.shape.width)[None, :]
        query = tl.load(q[:, None] + column[None, :], known, 0.0)
    values = tl.zeros([ROWS, VALUES], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    largest = tl.full([ROWS], FLOOR, tl.float32)
    for start in range(tl.maximum(low // KEYS * KEYS, begin), tl.minimum(high, end), KEYS):
        key = start + tl.arange(0, KEYS)
        # Nothing else may be read: the page may be absent, or hold whatever was there.
        there = ((key >= low) & (key < top)) | ((key >= scratch) & (key < high))
        page = tl.load(table + key // PAGE, there, 0)
        there &= (page >= 0) & (page < pages)
        keys = pool + (page.to(tl.int64) * 2 * PAGE + key % PAGE) * STRIDE + head * plan.shape.width
        if WHOLE:
            stored = there[None, :] & (column < plan.shape.width)[:, None]
            across = tl.load(keys[None, :] + column[:, None], stored, 0.0)
            score = multiply_add(query, across, tl.zeros([ROWS, KEYS], tl.float32))
        else:
            score = _scores(q, keys, there, alive, plan)
        seen = key[None, :] < row_top[:, None]
        if WINDOW > 0:
            seen &= key[None, :] >= row_low[:, None]
        seen |= ((key >= scratch) & (key < high))[None, :]
        score = tl.where(seen, score * _LOG2_E, float("-inf"))
        pointers = (keys + PAGE * STRIDE, first_value + tl.arange(0, VALUES))
        values, total, largest = _fold((values, total, largest), score, pointers, there, plan)
    return values, total, largest


@triton.jit
def _clear(segments, segment_count, rows, out, plan: tl.constexpr):
    """Zeros for this program's heads and columns of `out` in rows of no segment."""
    ROWS: tl.constexpr = plan.rows
    VALUES: tl.constexpr = plan.values
    GROUP: tl.constexpr = plan.shape.group
    block, step = idle_share(segments, segment_count, rows, plan)
    lane = tl.arange(0, ROWS)
    column = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    heads = tl.program_id(1) * GROUP + lane % GROUP
    for first in range(block * plan.tokens, rows, step * plan.tokens):
        row = first + lane // GROUP
        bare = uncovered(segments, segment_count, row, rows) & (lane < plan.tokens * GROUP)
        to = out + (row.to(tl.int64) * plan.shape.query_heads + heads) * plan.shape.width
        mask = bare[:, None] & (column < plan.shape.width)[None, :]
        zeros = tl.zeros([ROWS, VALUES], out.dtype.element_ty)
        tl.store(to[:, None] + column[None, :], zeros, mask)


@triton.jit
def _without_mass(segments, segment_count, rows, masses, plan: tl.constexpr):
    """-inf for this program's heads and split of `masses` in rows of no segment."""
    ROWS: tl.constexpr = plan.rows
    GROUP: tl.constexpr = plan.shape.group
    PARTS: tl.constexpr = plan.width // plan.values
    block, step = idle_share(segments, segment_count, rows, plan)
    lane = tl.arange(0, ROWS)
    heads = tl.program_id(1) * GROUP + lane % GROUP
    for first in range(block * plan.tokens, rows, step * plan.tokens):
        row = first + lane // GROUP
        bare = uncovered(segments, segment_count, row, rows) & (lane < plan.tokens * GROUP)
        at = (row.to(tl.int64) * plan.shape.query_heads + heads) * plan.splits
        nothing = tl.full([ROWS], float("-inf"), tl.float32)
        tl.store(masses + at + tl.program_id(2) // PARTS, nothing, bare)


@triton.jit(do_not_specialize=["rows", "segment_count", "tables", "table_width", "pages"])
def attend_kernel(inputs, rows, segment_count, tables, table_width, pages, out, plan: tl.constexpr):
    """`out` [N, Hq, D] of all `rows`; those of no segment become zeros.

    Inputs are (q [N, Hq, D], pool [pages, 2, page, Hkv, D], segments [segment_count, 5], table
    [tables, table_width]) as plugins.spec has them. Numbers in the last two that lie outside the
    tensors give any result, but touch nothing else. Grid: plan.grid.
    """
    q, pool, segments, table = inputs
    sizes = (rows, segment_count, tables, table_width)
    segment, table, busy, query, place = block_of(segments, table, sizes, plan)
    if not busy:
        _clear(segments, segment_count, rows, out, plan)
        return
    pointers = q + query * plan.shape.width
    values, total, _ = _attend(pointers, pool, pages, table, segment, place, plan)
    column = place[6] + tl.arange(0, plan.values)
    mask = place[2][:, None] & (column < plan.shape.width)[None, :]
    result = (values / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + (query * plan.shape.width)[:, None] + column[None, :], result, mask)


@triton.jit(do_not_specialize=["rows", "segment_count", "tables", "table_width", "pages"])
def attend_split_kernel(
    inputs, rows, segment_count, tables, table_width, pages, outputs, plan: tl.constexpr
):
    """As attend_kernel for one span of positions each: outputs are fp32 (averages, masses).

    averages [N, Hq, splits, D] of the span's values, masses [N, Hq, splits] the base-2 logarithms
    of what they count for, -inf for a span of which a row sees nothing. The averages of a row of no
    segment are left as they are.
    """
    q, pool, segments, table = inputs
    averages, masses = outputs
    sizes = (rows, segment_count, tables, table_width)
    segment, table, busy, query, place = block_of(segments, table, sizes, plan)
    if not busy:
        _without_mass(segments, segment_count, rows, masses, plan)
        return
    pointers = q + query * plan.shape.width
    values, total, largest = _attend(pointers, pool, pages, table, segment, place, plan)
    PARTS: tl.constexpr = plan.width // plan.values
    to = query * plan.splits + tl.program_id(2) // PARTS
    column = place[6] + tl.arange(0, plan.values)
    mask = place[2][:, None] & (column < plan.shape.width)[None, :]
    average = values / tl.where(total == 0, 1, total)[:, None]
    tl.store(averages + (to * plan.shape.width)[:, None] + column[None, :], average, mask)
    tl.store(masses + to, largest + tl.log2(total), place[2])


@triton.jit
def merge_kernel(averages, masses, out, plan: tl.constexpr):
    """`out` [N, Hq, D] of what attend_split_kernel left; a row without any mass becomes zeros.

    A program per row and head; spans in order.
    """
    SPLITS: tl.constexpr = plan.splits
    WIDTH: tl.constexpr = plan.width
    POWER: tl.constexpr = plan.split_slots
    index = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, POWER)
    every = tl.load(masses + index * SPLITS + slot, slot < SPLITS, float("-inf"))
    largest = tl.maximum(tl.max(every, 0), FLOOR)
    column = tl.arange(0, WIDTH)
    inside = column < plan.shape.width
    total = tl.full((), 0, tl.float32)
    values = tl.zeros([WIDTH], tl.float32)
    for split in range(0, SPLITS):
        share = tl.exp2(tl.load(masses + index * SPLITS + split) - largest)
        average = averages + (index * SPLITS + split) * plan.shape.width + column
        # Nothing was written for a row of no segment, and zero times NaN is NaN.
        values += tl.where(share > 0, share * tl.load(average, inside, 0.0), 0.0)
        total += share
    result = values / tl.where(total == 0, 1, total)
    tl.store(out + index * plan.shape.width + column, result.to(out.dtype.element_ty), inside)
