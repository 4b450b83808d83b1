"""The routed experts' kernels: pairs sorted by expert, two grouped products, a sum in order.

A pair is a row's choice: number row * choices + choice. A place is a pair's number once sorted by
expert. They know no launch and no torch.
"""

import triton
import triton.language as tl

from plugins.gpu.tiles import gelu_tanh, multiply_add


@triton.jit(do_not_specialize=["pairs"])
def sort_kernel(ids, pairs, order, places, starts, plan: tl.constexpr):
    """Sorts by expert, and by pair within; a program per expert.

    ids [pairs] of experts become order [pairs] (the pair at a place), places [pairs] (the place of
    a pair) and starts [E + 1] (the first place of an expert), all int32. What no expert has the
    number of gets no place: its entries are left as they are.
    """
    SCAN: tl.constexpr = plan.scan
    expert = tl.program_id(0)
    lower = tl.zeros([SCAN], tl.int32)
    equal = tl.zeros([SCAN], tl.int32)
    for first in range(0, pairs, SCAN):
        pair = first + tl.arange(0, SCAN)
        chosen = tl.load(ids + pair, pair < pairs, plan.shape.experts).to(tl.int32)
        lower += (chosen < expert).to(tl.int32)
        equal += (chosen == expert).to(tl.int32)
    place = tl.sum(lower, 0)
    tl.store(starts + expert, place)
    if expert == plan.shape.experts - 1:
        tl.store(starts + expert + 1, place + tl.sum(equal, 0))
    for first in range(0, pairs, SCAN):
        pair = first + tl.arange(0, SCAN)
        chosen = tl.load(ids + pair, pair < pairs, plan.shape.experts).to(tl.int32)
        hit = chosen == expert
        at = place + tl.cumsum(hit.to(tl.int32), 0) - 1
        tl.store(order + at, pair, hit)
        tl.store(places + pair, at, hit)
        place += tl.sum(hit.to(tl.int32), 0)


@triton.jit
def _block(starts, pairs, plan: tl.constexpr):
    """(expert, places [rows], which are its own) of this block; (E, _, _) past the last.

    Its own lie within `pairs`, whatever `starts` are.
    """
    ROWS: tl.constexpr = plan.rows
    EXPERTS: tl.constexpr = plan.shape.experts
    block = tl.program_id(0)
    expert = tl.arange(0, plan.expert_slots)
    first = tl.load(starts + expert, expert < EXPERTS, 0)
    last = tl.load(starts + expert + 1, expert < EXPERTS, 0)
    ends = tl.cumsum((last - first + ROWS - 1) // ROWS, 0)
    over = (ends <= block) & (expert < EXPERTS)
    passed = tl.sum(over.to(tl.int32), 0)
    before = tl.max(tl.where(over, ends, 0), 0)
    own = tl.minimum(passed, EXPERTS - 1)
    place = tl.load(starts + own) + (block - before) * ROWS + tl.arange(0, ROWS)
    end = tl.minimum(tl.load(starts + own + 1), pairs)
    return passed, place, (place >= 0) & (place < end)


@triton.jit(do_not_specialize=["pairs"])
def gate_up_kernel(x, order, starts, gate_up, pairs, inner, plan: tl.constexpr):
    """inner [pairs, I] by place: gelu_tanh(gate) * up of the pair's row and expert.

    x [N, H], gate_up [E, 2 I, H] with gates first; grid: plan.grid.
    """
    HIDDEN: tl.constexpr = plan.shape.hidden
    INNER: tl.constexpr = plan.shape.inner
    STEP: tl.constexpr = plan.step
    ROWS: tl.constexpr = plan.rows
    COLUMNS: tl.constexpr = plan.columns
    expert, place, alive = _block(starts, pairs, plan)
    if expert >= plan.shape.experts:
        return
    pair = tl.load(order + place, alive, 0)
    known = alive & (pair >= 0) & (pair < pairs)
    row = pair // plan.shape.choices
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    rows = x + row.to(tl.int64)[:, None] * HIDDEN + depth[None, :]
    gates = gate_up + (expert.to(tl.int64) * 2 * INNER + column)[None, :] * HIDDEN + depth[:, None]
    gate = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, HIDDEN, STEP):
        inside = start + depth < HIDDEN
        weights = (column < INNER)[None, :] & inside[:, None]
        left = tl.load(rows + start, known[:, None] & inside[None, :], 0.0)
        gate = multiply_add(left, tl.load(gates + start, weights, 0.0), gate)
        up = multiply_add(left, tl.load(gates + INNER * HIDDEN + start, weights, 0.0), up)
    result = (gelu_tanh(gate) * up).to(inner.dtype.element_ty)
    to = inner + place.to(tl.int64)[:, None] * INNER + column[None, :]
    tl.store(to, result, alive[:, None] & (column < INNER)[None, :])


@triton.jit(do_not_specialize=["pairs"])
def down_kernel(inner, starts, down, pairs, produced, plan: tl.constexpr):
    """produced [pairs, H] fp32 by place: inner times the expert's down [E, H, I], as gate_up."""
    HIDDEN: tl.constexpr = plan.shape.hidden
    INNER: tl.constexpr = plan.shape.inner
    STEP: tl.constexpr = plan.step
    ROWS: tl.constexpr = plan.rows
    COLUMNS: tl.constexpr = plan.columns
    expert, place, alive = _block(starts, pairs, plan)
    if expert >= plan.shape.experts:
        return
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    rows = inner + place.to(tl.int64)[:, None] * INNER + depth[None, :]
    weights = down + (expert.to(tl.int64) * HIDDEN + column)[None, :] * INNER + depth[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, INNER, STEP):
        inside = start + depth < INNER
        left = tl.load(rows + start, alive[:, None] & inside[None, :], 0.0)
        known = (column < HIDDEN)[None, :] & inside[:, None]
        total = multiply_add(left, tl.load(weights + start, known, 0.0), total)
    to = produced + place.to(tl.int64)[:, None] * HIDDEN + column[None, :]
    tl.store(to, total, alive[:, None] & (column < HIDDEN)[None, :])


@triton.jit(do_not_specialize=["pairs"])
def combine_kernel(produced, places, weights, pairs, out, plan: tl.constexpr):
    """out [N, H]: a row's experts times its weights [N, K], summed in order of its choices."""
    CHOICES: tl.constexpr = plan.shape.choices
    COLUMNS: tl.constexpr = plan.combined
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < plan.shape.hidden
    total = tl.zeros([COLUMNS], tl.float32)
    for choice in range(0, CHOICES):
        place = tl.load(places + row * CHOICES + choice)
        known = inside & (place >= 0) & (place < pairs)
        values = produced + place.to(tl.int64) * plan.shape.hidden + column
        values = tl.load(values, known, 0.0)
        total += tl.load(weights + row * CHOICES + choice) * values
    to = out + row.to(tl.int64) * plan.shape.hidden + column
    tl.store(to, total.to(out.dtype.element_ty), inside)
