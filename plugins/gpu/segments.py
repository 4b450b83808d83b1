"""Where a program of the attention finds its query rows and which keys they see; knows no sums."""

import triton
import triton.language as tl

from plugins.spec import COMMITTED, FIRST_ROW, PHASE, ROW_COUNT, SEGMENT_FIELDS, TABLE_ROW, Phase

_FIRST_ROW = tl.constexpr(FIRST_ROW)
_ROW_COUNT = tl.constexpr(ROW_COUNT)
_PHASE = tl.constexpr(PHASE)
COMMITTED_AT = tl.constexpr(COMMITTED)
_TABLE_ROW = tl.constexpr(TABLE_ROW)
_FIELDS = tl.constexpr(SEGMENT_FIELDS)
_DENOISE = tl.constexpr(int(Phase.DENOISE))
_LOCATED = tl.constexpr(64)


@triton.jit
def _locate(segments, count, block, TOKENS: tl.constexpr):
    """(segment, first token in it, rows of all segments) of a block of query tokens.

    Past the last block it is (`count`, blocks past it * TOKENS, _). Blocks are numbered through the
    segments, each of which starts a new one, so no list of blocks has to be made. Only `row_count`
    is read of a segment without rows.
    """
    passed = tl.full((), 0, tl.int32)
    before = tl.full((), 0, tl.int32)
    total = tl.full((), 0, tl.int32)
    covered = tl.full((), 0, tl.int32)
    for start in range(0, count, _LOCATED):
        index = start + tl.arange(0, _LOCATED)
        rows = tl.load(segments + index * _FIELDS + _ROW_COUNT, index < count, 0)
        ends = total + tl.cumsum((rows + TOKENS - 1) // TOKENS, 0)
        over = (ends <= block) & (index < count)
        passed += tl.sum(over.to(tl.int32), 0)
        before = tl.maximum(before, tl.max(tl.where(over, ends, 0), 0))
        total = tl.max(ends, 0)
        covered += tl.sum(rows, 0)
    return passed, (block - before) * TOKENS, covered


@triton.jit
def bounds(segment, first_token, positions, plan: tl.constexpr):
    """What a block's rows may read, as positions of their table row: [low, top), [scratch, high).

    `segment` points at the segment's fields. A causal block has no scratch range: its own keys
    follow the committed ones. A canvas's keys start on the page after those. Neither range reaches
    below 0 or past `positions`, whatever the fields are.
    """
    WINDOW: tl.constexpr = plan.shape.window
    PAGE: tl.constexpr = plan.shape.page
    rows = tl.load(segment + _ROW_COUNT)
    committed = tl.load(segment + COMMITTED_AT)
    canvas = tl.load(segment + _PHASE) == _DENOISE
    low = tl.full((), 0, tl.int32)
    if WINDOW > 0:
        low = tl.maximum(0, committed + tl.where(canvas, 0, first_token) - WINDOW + 1)
    last = committed + tl.minimum(first_token + plan.tokens, rows)
    scratch = tl.where(canvas, (committed + PAGE - 1) // PAGE * PAGE, last)
    top = tl.minimum(tl.where(canvas, committed, last), positions)
    high = tl.minimum(tl.where(canvas, scratch + rows, last), positions)
    return low, top, scratch, high, canvas


@triton.jit
def block_of(segments, table, sizes, plan: tl.constexpr):
    """(segment's pointer, its table row's, is there one, query heads, place) of this program.

    `sizes` are (rows of the call, segments, table rows, pages of each). Query heads [rows] count
    through q and the output; `place` is (first token, token of each row, which rows live, key/value
    head, first position, one past the last, first column of v, positions of the table row). A row
    of q or of the table that does not exist is never touched: the one does not live, the other has
    no positions.
    """
    call_rows, segment_count, tables, table_width = sizes
    PARTS: tl.constexpr = plan.width // plan.values
    GROUP: tl.constexpr = plan.shape.group
    # Later blocks of a causal segment read more keys, so they come first.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    index, first_token, _ = _locate(segments, segment_count, block, plan.tokens)
    segment = segments + index * _FIELDS
    busy = index < segment_count
    rows = tl.load(segment + _ROW_COUNT, busy, 0)
    table_row = tl.load(segment + _TABLE_ROW, busy, 0)
    table += table_row.to(tl.int64) * table_width
    held = (table_row >= 0) & (table_row < tables)
    positions = tl.where(held, table_width * plan.shape.page, 0)
    row = tl.arange(0, plan.rows)
    token = first_token + row // GROUP
    alive = (row < plan.tokens * GROUP) & (token < rows)
    query = tl.load(segment + _FIRST_ROW, busy, 0).to(tl.int64) + token
    alive &= (query >= 0) & (query < call_rows)
    query = query * plan.shape.query_heads + head * GROUP + row % GROUP
    split = tl.program_id(2) // PARTS
    begin = split * plan.span
    end = begin + plan.span if plan.span else 2147483647
    first_value = tl.program_id(2) % PARTS * plan.values
    place = (first_token, token, alive, head, begin, end, first_value, positions)
    return segment, table, busy, query, place


@triton.jit
def uncovered(segments, segment_count, row, rows):
    """Which of `row` are rows of the call that no segment has."""
    held = row < 0
    for index in range(0, segment_count):
        first = tl.load(segments + index * _FIELDS + _FIRST_ROW)
        count = tl.load(segments + index * _FIELDS + _ROW_COUNT)
        held |= (row >= first) & (row < first + count)
    return (row < rows) & (held == 0)


@triton.jit
def idle_share(segments, segment_count, rows, plan: tl.constexpr):
    """(first block of tokens, how many blocks on the next is) that a program clears; none: `rows`.

    A program past the last segment has no rows of its own. All of those together go through the
    call's rows, unless the segments have them all.
    """
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    index, passed, covered = _locate(segments, segment_count, block, plan.tokens)
    own = passed // plan.tokens
    idle = (index >= segment_count) & (covered < rows)
    return tl.where(idle, own, rows), tl.num_programs(0) - (block - own)
