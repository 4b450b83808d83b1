"""`dg::label_head` and `dg::denoise_head` as launches of a traced graph, for every number of rows.

The launches of heads_op.py, but for the tiers.
"""

from functools import partial

import torch
from torch import Tensor

from plugins.gpu.denoise_fold import (
    FOLD_FIELDS,
    STATE_FIELDS,
    denoise_fold_kernel,
    denoise_merge_kernel,
)
from plugins.gpu.denoise_soft import denoise_finish_kernel, denoise_soft_kernel
from plugins.gpu.heads_plan import plan_denoise_head, plan_label_head
from plugins.gpu.label_head import FIELDS, label_fold_kernel, label_merge_kernel
from plugins.gpu.launch import dtype_name
from plugins.gpu.tiers import Build, tiers
from plugins.gpu.traced import record, serves


def label_head(
    build: Build, hidden: Tensor, embedding: Tensor, label_ids: Tensor, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spans folded by blocks of the tier's height, then merged."""
    (rows, width), vocabulary = hidden.shape, embedding.shape[0]
    plan_of = partial(plan_label_head, width, vocabulary, float(softcap), dtype_name(hidden))
    plans = tiers(lambda n: plan_of(n, build.gpu), build.rows)
    hidden, labels = hidden.contiguous(), label_ids.contiguous()
    logits = hidden.new_empty(labels.shape, dtype=torch.float32)
    folds = hidden.new_empty((FIELDS, plans[0].plan.spans, rows), dtype=torch.float32)
    lse, entropy = (hidden.new_empty((rows,), dtype=torch.float32) for _ in range(2))
    argmax = hidden.new_empty((rows,), dtype=torch.int32)
    inputs = (hidden, embedding, labels, rows, labels.shape[1])
    for tier in plans:
        blocks, spans = tier.plan.grid(rows)
        grid = (blocks * serves(tier, rows), spans)
        record(label_fold_kernel, grid, (*inputs, logits, folds), tier.plan)
    record(label_merge_kernel, (rows,), (folds, rows, lse, entropy, argmax), plans[0].plan)
    return logits, lse, entropy, argmax


def denoise_head(
    build: Build,
    hidden: Tensor,
    embedding: Tensor,
    temperature: Tensor,
    draws: Tensor,
    softcap: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Chunk after chunk folded, merged and added to the soft embedding, then the results."""
    (rows, width), vocabulary = hidden.shape, embedding.shape[0]
    sizes, numbers = (width, vocabulary), (float(softcap), float(scale))
    plan_of = partial(plan_denoise_head, sizes, *numbers, dtype_name(hidden))
    plans = tiers(lambda n: plan_of(n, build.gpu), build.rows)
    plan = plans[0].plan
    floats = partial(hidden.new_empty, dtype=torch.float32)
    hidden, temperature, draws = (
        hidden.contiguous(),
        temperature.contiguous(),
        draws.contiguous(),
    )
    powers, soft = hidden.new_empty((rows, plan.width)), hidden.new_empty(hidden.shape)
    folds = floats((FOLD_FIELDS, plan.chunk, rows))
    # What stands before the first chunk is not read.
    state, sums = temperature, folds
    factors = floats((plan.chunk, rows))
    argmax, candidate = (hidden.new_empty((rows,), dtype=torch.int32) for _ in range(2))
    entropy, log_prob, drawn = (floats((rows,)) for _ in range(3))
    for chunk in range(plan.chunks):
        folded = (hidden, embedding, temperature, draws, rows, chunk, (powers, folds))
        for tier in plans:
            grid = (tier.plan.blocks(rows) * serves(tier, rows), plan.tiles_in(chunk))
            record(denoise_fold_kernel, grid, folded, tier.plan)
        # New ones for each chunk: what is both read and written would be copied.
        earlier, state = state, floats((STATE_FIELDS, rows))
        merged = (folds, temperature, earlier, rows, chunk, state, factors)
        record(denoise_merge_kernel, (rows,), merged, plan)
        before, sums = sums, floats((plan.splits, rows, width))
        added = ((powers, embedding, factors, state, before), rows, chunk, sums)
        for tier in plans:
            blocks, columns, splits = tier.plan.soft_grid(rows)
            served = (blocks * serves(tier, rows), columns, splits)
            record(denoise_soft_kernel, served, added, tier.plan)
    outputs = (argmax, candidate, entropy, log_prob, drawn, soft)
    grid = (rows, plan.soft_grid(rows)[1])
    record(denoise_finish_kernel, grid, (state, sums, temperature, rows, outputs), plan)
    return outputs
