"""The denoise head's last two kernels: the soft embedding by chunks, then a row's results.

They know no launch, no torch and no logits.
"""

import triton
import triton.language as tl

from plugins.gpu.denoise_fold import (
    ARGMAX,
    CANDIDATE,
    CARRY,
    CHOSEN,
    LARGEST,
    PLAIN,
    SUM,
    WEIGHTED,
)
from plugins.gpu.tiles import multiply_add


@triton.jit(do_not_specialize=["rows", "chunk"])
def denoise_soft_kernel(inputs, rows, chunk, sums, plan: tl.constexpr):
    """`sums` [splits, R, H]: those of the chunks before and a chunk's powers times embedding rows.

    Inputs are (powers [R, chunk's width], embedding, factors [chunk, R], state, the sums before),
    the last of which may be the same memory and are not read in chunk 0. Grid: plan.soft_grid.
    """
    powers, embedding, factors, state, before = inputs
    ROWS: tl.constexpr = plan.rows
    IDS: tl.constexpr = plan.ids
    COLUMNS: tl.constexpr = plan.columns
    split = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < plan.hidden)[None, :]
    lane = tl.arange(0, IDS)
    place = (split * rows + row).to(tl.int64) * plan.hidden
    at = place[:, None] + column[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    if chunk > 0:
        carry = tl.load(state + CARRY * rows + row, row < rows, 0.0)
        total = tl.load(before + at, inside, 0.0) * carry[:, None]
    left = powers + row.to(tl.int64)[:, None] * plan.width + lane[None, :]
    last = tl.minimum(plan.chunk, plan.tiles - chunk * plan.chunk)
    for tile in range(split * plan.part, tl.minimum((split + 1) * plan.part, last)):
        identity = (chunk * plan.chunk + tile) * IDS + lane
        known = (identity < plan.vocabulary)[:, None] & (column < plan.hidden)[None, :]
        ids = identity.to(tl.int64)[:, None]
        table = tl.load(embedding + ids * plan.hidden + column[None, :], known, 0.0)
        power = tl.load(left + tile * IDS, (row < rows)[:, None] & (lane < IDS)[None, :], 0.0)
        factor = tl.load(factors + tile * rows + row, row < rows, 0.0)
        weight = (power.to(tl.float32) * factor[:, None]).to(table.dtype)
        total = multiply_add(weight, table, total)
    tl.store(sums + at, total, inside)


@triton.jit(do_not_specialize=["rows"])
def denoise_finish_kernel(state, sums, temperature, rows, outputs, plan: tl.constexpr):
    """A row's results of its last state; grid (R, blocks of columns).

    Outputs are (argmax, candidate, entropy, log_prob, candidate_log_prob, soft [R, H]).
    """
    COLUMNS: tl.constexpr = plan.columns
    argmax, candidate, entropy, log_prob, candidate_log_prob, soft = outputs
    row = tl.program_id(0).to(tl.int64)
    at = state + row
    total = tl.load(at + SUM * rows)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < plan.hidden
    mean = tl.zeros([COLUMNS], tl.float32)
    for split in range(0, plan.splits):
        mean += tl.load(sums + (split * rows + row) * plan.hidden + column, inside, 0.0)
    mean = plan.scale * (mean / total)
    tl.store(soft + row * plan.hidden + column, mean.to(soft.dtype.element_ty), inside)
    if tl.program_id(1) == 0:
        inverse = 1 / tl.load(temperature + row)
        distance = tl.load(at + CHOSEN * rows) - tl.load(at + LARGEST * rows)
        tl.store(argmax + row, tl.load(at + ARGMAX * rows).to(tl.int32, bitcast=True))
        tl.store(candidate + row, tl.load(at + CANDIDATE * rows).to(tl.int32, bitcast=True))
        tl.store(entropy + row, tl.log(total) - tl.load(at + WEIGHTED * rows) / total)
        tl.store(log_prob + row, -tl.log(tl.load(at + PLAIN * rows)))
        tl.store(candidate_log_prob + row, distance * inverse - tl.log(total))
