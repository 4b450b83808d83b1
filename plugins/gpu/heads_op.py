"""`dg::label_head` and `dg::denoise_head` on a GPU; know no kernel's inside."""

import torch
from torch import Tensor

from plugins.gpu.denoise_fold import (
    FOLD_FIELDS,
    STATE_FIELDS,
    denoise_fold_kernel,
    denoise_merge_kernel,
)
from plugins.gpu.denoise_soft import denoise_finish_kernel, denoise_soft_kernel
from plugins.gpu.heads_plan import DenoisePlan, plan_denoise_head, plan_label_head
from plugins.gpu.label_head import FIELDS, label_fold_kernel, label_merge_kernel
from plugins.gpu.launch import dtype_name, gpu_of, launch


def label_head(
    hidden: Tensor, embedding: Tensor, label_ids: Tensor, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(label logits [R, L], log-sum-exp, entropy, argmax [R]) as plugins.reference defines them."""
    _check(hidden, embedding, softcap)
    hidden, labels = hidden.contiguous(), label_ids.contiguous()
    (rows, width), vocabulary = hidden.shape, len(embedding)
    plan = plan_label_head(
        width, vocabulary, float(softcap), dtype_name(hidden), rows, gpu_of(hidden)
    )
    logits = hidden.new_empty(labels.shape, dtype=torch.float32)
    folds = hidden.new_empty((FIELDS, plan.spans, rows), dtype=torch.float32)
    lse, entropy = hidden.new_empty((2, rows), dtype=torch.float32)
    argmax = hidden.new_empty((rows,), dtype=torch.int32)
    inputs = (hidden, embedding, labels, rows, labels.shape[1])
    launch(label_fold_kernel, plan.grid(rows), (*inputs, logits, folds), plan)
    launch(label_merge_kernel, (rows,), (folds, rows, lse, entropy, argmax), plan)
    return logits, lse, entropy, argmax


def denoise_head(
    hidden: Tensor,
    embedding: Tensor,
    temperature: Tensor,
    draws: Tensor,
    softcap: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(argmax, candidate, entropy, log_prob, candidate_log_prob [R], soft [R, H]).

    As plugins.reference defines them; temperatures and draws are trusted to be in range.
    """
    _check(hidden, embedding, softcap)
    (rows, width), vocabulary = hidden.shape, len(embedding)
    plan = plan_denoise_head(
        *((width, vocabulary), float(softcap), float(scale)),
        *(dtype_name(hidden), rows, gpu_of(hidden)),
    )
    return run_denoise(hidden, embedding, temperature, draws, plan)


def run_denoise(
    hidden: Tensor, embedding: Tensor, temperature: Tensor, draws: Tensor, plan: DenoisePlan
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The denoise head by a plan of its own."""
    hidden, temperature, draws = hidden.contiguous(), temperature.contiguous(), draws.contiguous()
    rows, width = hidden.shape
    powers = hidden.new_empty((rows, plan.width))
    sums = hidden.new_empty((plan.splits, rows, width), dtype=torch.float32)
    folds = hidden.new_empty((FOLD_FIELDS, plan.chunk, rows), dtype=torch.float32)
    state = hidden.new_empty((STATE_FIELDS, rows), dtype=torch.float32)
    factors = hidden.new_empty((plan.chunk, rows), dtype=torch.float32)
    argmax, candidate = hidden.new_empty((2, rows), dtype=torch.int32)
    entropy, log_prob, drawn = hidden.new_empty((3, rows), dtype=torch.float32)
    soft = torch.empty_like(hidden)
    outputs = (argmax, candidate, entropy, log_prob, drawn, soft)
    for chunk in range(plan.chunks):
        grid = (plan.blocks(rows), plan.tiles_in(chunk))
        folded = (hidden, embedding, temperature, draws, rows, chunk, (powers, folds))
        launch(denoise_fold_kernel, grid, folded, plan)
        merged = (folds, temperature, state, rows, chunk, state, factors)
        launch(denoise_merge_kernel, (rows,), merged, plan)
        added = ((powers, embedding, factors, state, sums), rows, chunk, sums)
        launch(denoise_soft_kernel, plan.soft_grid(rows), added, plan)
    grid = (rows, plan.soft_grid(rows)[1])
    launch(denoise_finish_kernel, grid, (state, sums, temperature, rows, outputs), plan)
    return outputs


def _check(hidden: Tensor, embedding: Tensor, softcap: float) -> None:
    if hidden.shape[1] != embedding.shape[1] or hidden.dtype != embedding.dtype:
        kinds = f"{list(hidden.shape)} {hidden.dtype}, {list(embedding.shape)} {embedding.dtype}"
        raise ValueError(f"hidden and embedding are {kinds}; width and type must be the same")
    if len(embedding) == 0 or not embedding.is_contiguous() or softcap <= 0:
        raise ValueError("embedding must be contiguous and have rows, softcap be above 0")
