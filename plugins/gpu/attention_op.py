"""`dg::mixed_mask_paged_attention` on a GPU: page write, then attention."""

import torch
from torch import Tensor

from plugins.gpu.attention import attend_kernel, attend_split_kernel, merge_kernel
from plugins.gpu.attention_plan import AttentionPlan, AttentionShape, plan_attention, split
from plugins.gpu.launch import dtype_name, gpu_of, launch
from plugins.gpu.page_plan import plan_page_write
from plugins.gpu.page_write import page_write_kernel


def write_pages(k: Tensor, v: Tensor, kv_pool: Tensor, slots: Tensor) -> None:
    """k and v [N, Hkv, D] into their slots of the pool, in place; one outside it writes nothing."""
    plan = plan_page_write(k.shape[1], k.shape[2], kv_pool.shape[2])
    inputs = (k.contiguous(), v.contiguous(), slots.contiguous(), kv_pool)
    launch(page_write_kernel, plan.grid(len(k)), (*inputs, len(kv_pool), kv_pool), plan)


def attend(
    q: Tensor, kv_pool: Tensor, segments: Tensor, block_table: Tensor, plan: AttentionPlan
) -> Tensor:
    """[N, Hq, D] over pages that are written already; rows in no segment are zero."""
    q, segments, table = q.contiguous(), segments.contiguous(), block_table.contiguous()
    sizes = (len(q), len(segments), *table.shape, len(kv_pool))
    inputs = ((q, kv_pool, segments, table), *sizes)
    grid = plan.grid(len(q), len(segments))
    out = torch.empty_like(q)
    if plan.splits == 1:
        launch(attend_kernel, grid, (*inputs, out), plan)
        return out
    partial = (*q.shape[:2], plan.splits)
    averages = q.new_empty((*partial, q.shape[2]), dtype=torch.float32)
    masses = q.new_empty(partial, dtype=torch.float32)
    launch(attend_split_kernel, grid, (*inputs, (averages, masses)), plan)
    launch(merge_kernel, (len(q) * q.shape[1],), (averages, masses, out), plan)
    return out


def mixed_mask_paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_pool: Tensor,
    slots: Tensor,
    segments: Tensor,
    block_table: Tensor,
    window: int,
) -> Tensor:
    """The op as plugins.reference defines it; indices are not checked: to read them is to wait."""
    _check(q, k, v, kv_pool)
    if len(q) == 0:
        return torch.empty_like(q)
    page, gpu = kv_pool.shape[2], gpu_of(q)
    shape = AttentionShape(q.shape[1], k.shape[1], q.shape[2], page, window)
    plan = plan_attention(shape, dtype_name(q), gpu)
    positions = block_table.shape[1] * page
    write_pages(k, v, kv_pool, slots)
    return attend(q, kv_pool, segments, block_table, split(plan, len(q), positions, gpu))


def _check(q: Tensor, k: Tensor, v: Tensor, kv_pool: Tensor) -> None:
    rows, heads, width = k.shape
    if q.shape[0] != rows or q.shape[2] != width or v.shape != k.shape or q.shape[1] % heads:
        shapes = f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        raise ValueError(f"q, k, v have shapes {shapes}; they must be [N, Hq, D] and [N, Hkv, D]")
    if kv_pool.shape[1] != 2 or kv_pool.shape[3:] != k.shape[1:] or not kv_pool.is_contiguous():
        pool = list(kv_pool.shape)
        raise ValueError(f"kv_pool is {pool}; it must be contiguous [pages, 2, page, Hkv, D]")
    if not q.dtype == k.dtype == v.dtype == kv_pool.dtype:
        kinds = f"{q.dtype}, {k.dtype}, {v.dtype}, {kv_pool.dtype}"
        raise ValueError(f"q, k, v and kv_pool are {kinds}; they must be of one type")
