"""Mixed-mask paged attention as ONNX functions of standard ops; knows no model.

onnxscript reads these functions' source, Python never runs them.
"""

from onnxscript import opset23 as op
from onnxscript import script

from plugins.onnx_domain import INT32, INT64, dg
from plugins.spec import COMMITTED, FIRST_ROW, PHASE, ROW_COUNT, TABLE_ROW, Phase

FAR = 1 << 30
"""The window of full attention: farther than any position."""

_FIRST, _COUNT, _PHASE, _COMMITTED, _TABLE = FIRST_ROW, ROW_COUNT, PHASE, COMMITTED, TABLE_ROW
_DENOISE = int(Phase.DENOISE)


@script(dg, default_opset=op)
def write_rows(kv_pool, rows, slots):
    """The pool with every row's key and value at its slot; a row without one is not written."""
    shape = op.Shape(kv_pool)
    pages, page = op.Gather(shape, 0), op.Gather(shape, 2)
    # Rows without a slot go to a page behind the last, which is cut off again.
    slot = op.Where(slots < 0, pages * page, slots)
    longer = op.Concat(kv_pool, op.Slice(kv_pool, [0], [1], [0]), axis=0)
    place = op.Concat(op.Unsqueeze(slot / page, [1]), op.Unsqueeze(slot % page, [1]), axis=1)
    by_place = op.Transpose(longer, perm=[0, 2, 1, 3, 4])
    written = op.Transpose(op.ScatterND(by_place, place, rows), perm=[0, 2, 1, 3, 4])
    return op.Slice(written, [0], op.Unsqueeze(pages, [0]), [0])


@script(dg, default_opset=op)
def history_slots(committed, table, page, reach):
    """Slot [S, H] of each committed position a segment may see, and whether there is one."""
    pages = op.Gather(op.Shape(table), 1)
    length = op.Min(pages * page, reach - 1)
    first = op.Max(committed - length, 0)
    place = op.Unsqueeze(first, [1]) + op.Unsqueeze(op.Range(0, length, 1), [0])
    column = op.Min(place / page, pages - 1)
    held = op.Max(op.Cast(op.GatherElements(table, column, axis=1), to=INT64), 0)
    return held * page + place % page, place, place < op.Unsqueeze(committed, [1])


@script(dg, default_opset=op)
def visible(committed, count, denoise, lanes, place, present, reach):
    """Which of its history and of its own rows [S, M, H + M] each row of a segment sees."""
    row, own = op.Unsqueeze(lanes, [0, 2]), op.Unsqueeze(lanes, [0, 1])
    canvas = op.Unsqueeze(denoise, [1, 2])
    start = op.Unsqueeze(committed, [1, 2])
    # The whole canvas looks back from its first position, a prompt row from its own.
    position = op.Where(canvas, start, start + row)
    near = op.Unsqueeze(place, [1]) > position - reach
    history = op.And(op.Unsqueeze(present, [1]), near)
    causal = op.And(own <= row, own > row - reach)
    inside = own < op.Unsqueeze(count, [1, 2])
    fresh = op.And(op.Or(canvas, causal), inside)
    return op.Concat(history, fresh, axis=2)


@script(dg, default_opset=op)
def stored_rows(rows, kv_pool, slots, slot, present):
    """Keys and values [S, H, 2, Hkv, D] at slots, those written in this execution from `rows`."""
    shape = op.Shape(kv_pool)
    pages, page = op.Gather(shape, 0), op.Gather(shape, 2)
    flat = op.Reshape(kv_pool, op.Concat([-1, 1], op.Slice(shape, [3], [5], [0]), axis=0))
    capacity = pages * page
    nowhere = op.Expand(op.Constant(value_int=-1), op.Unsqueeze(capacity + 1, [0]))
    target = op.Where(slots < 0, capacity, slots)
    numbers = op.Range(0, op.Gather(op.Shape(slots), 0), 1)
    writer = op.Gather(op.ScatterND(nowhere, op.Unsqueeze(target, [1]), numbers), slot)
    at = slot / page * (2 * page) + slot % page
    old = op.Concat(op.Gather(flat, at), op.Gather(flat, at + page), axis=2)
    new = op.Gather(rows, op.Max(writer, 0))
    found = op.Where(op.Unsqueeze(writer >= 0, [2, 3, 4]), new, old)
    # What nobody may see may be anything, and 0 * NaN is NaN.
    nothing = op.CastLike(op.Constant(value_float=0.0), rows)
    return op.Where(op.Unsqueeze(present, [2, 3, 4]), found, nothing)


@script(dg, default_opset=op)
def rows_of(k, v):
    """Keys and values of every row side by side [N, 2, Hkv, D], as the pool holds them."""
    return op.Concat(op.Unsqueeze(k, [1]), op.Unsqueeze(v, [1]), axis=1)


@script(dg, default_opset=op)
def attend(q, rows, kv_pool, slots, segments, block_table, lanes, window: int):
    """Attention of every row by its segment, as if the rows were in the pool; zero in no segment.

    `lanes` is 0 .. M - 1, M at least the rows of the longest segment.
    """
    wide = op.Cast(segments, to=INT64)
    first, count = op.Gather(wide, _FIRST, axis=1), op.Gather(wide, _COUNT, axis=1)
    committed = op.Gather(wide, _COMMITTED, axis=1)
    denoise = op.Gather(wide, _PHASE, axis=1) == _DENOISE
    width = op.Constant(value_int=window)
    reach = op.Where(width == 0, FAR, width)
    page = op.Gather(op.Shape(kv_pool), 2)
    table = op.Gather(block_table, op.Gather(wide, _TABLE, axis=1))
    slot, place, present = dg.history_slots(committed, table, page, reach)
    mask = dg.visible(committed, count, denoise, lanes, place, present, reach)
    stored = dg.stored_rows(rows, kv_pool, slots, slot, present)
    inside = op.Unsqueeze(lanes, [0]) < op.Unsqueeze(count, [1])
    row = op.Where(inside, op.Unsqueeze(first, [1]) + op.Unsqueeze(lanes, [0]), 0)
    seen = op.Transpose(op.Concat(stored, op.Gather(rows, row), axis=1), perm=[2, 0, 3, 1, 4])
    queries = op.Transpose(op.Gather(q, row), perm=[0, 2, 1, 3])
    keys, values = op.Gather(seen, 0), op.Gather(seen, 1)
    found = op.Attention(queries, keys, values, op.Unsqueeze(mask, [1]), scale=1.0)
    lined = op.Transpose(found, perm=[0, 2, 1, 3])
    flat = op.Reshape(lined, op.Concat([-1], op.Slice(op.Shape(q), [1], [3], [0]), axis=0))
    return dg.in_row_order(flat, q, first, count, lanes)


@script(dg, default_opset=op)
def in_row_order(lined, q, first, count, lanes):
    """Rows [S * M, Hq, D] of padded segments back in the order of the execution's rows."""
    row = op.Unsqueeze(op.Range(0, op.Gather(op.Shape(q), 0), 1), [1])
    lane = row - op.Unsqueeze(first, [0])
    mine = op.Cast(op.And(lane >= 0, lane < op.Unsqueeze(count, [0])), to=INT32)
    segment = op.ArgMax(mine, axis=1, keepdims=1)
    at = segment * op.Gather(op.Shape(lanes), 0) + op.GatherElements(lane, segment, axis=1)
    covered = op.GatherElements(mine, segment, axis=1) > 0
    rows = op.Gather(lined, op.Squeeze(op.Where(covered, at, 0), [1]))
    return op.Where(op.Unsqueeze(covered, [2]), rows, op.CastLike(op.Constant(value_float=0.0), q))


@script(dg, default_opset=op)
def mixed_mask_paged_attention(q, k, v, kv_pool, slots, segments, block_table, window: int):
    """Attention of every row, and the pool with every row's keys and values written."""
    longest = op.ReduceMax(op.Gather(segments, _COUNT, axis=1), keepdims=0)
    lanes = op.Range(0, op.Max(op.Cast(longest, to=INT64), 1), 1)
    rows = dg.rows_of(k, v)
    out = dg.attend(q, rows, kv_pool, slots, segments, block_table, lanes, window=window)
    return out, dg.write_rows(kv_pool, rows, slots)
