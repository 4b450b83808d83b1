"""The paged attention against torch's SDPA and flex_attention on equal, dense work.

Every query sees every key, or all before it: nothing for a mask to skip, no window that cuts. The
peers get queries, keys and values that lie as they like them; the pages are ours alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import gpu_peers
from benchmarks.gpu_cases import Finding, NotHereError, Timed
from benchmarks.gpu_clock import first_line
from benchmarks.gpu_compare import bound_of, distance
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import Work, attention, causal_pairs
from plugins.gpu import attention_op
from plugins.gpu.attention_plan import AttentionShape, plan_attention, split
from plugins.gpu.launch import dtype_name, gpu_of
from plugins.spec import Phase

_PAGE_WRITE = "dg with page write"
OURS = "dg"


@dataclass(frozen=True)
class Dense:
    """One call's tensors, paged and dense: q [B, Hq, R, D], keys and values [B, Hkv, S, D]."""

    q: Tensor
    keys: Tensor
    values: Tensor
    pool: Tensor
    segments: Tensor
    table: Tensor
    slots: Tensor
    causal: bool

    @property
    def rows(self) -> Tensor:
        """q as the op takes it, [B * R, Hq, D]."""
        return self.q.transpose(1, 2).flatten(0, 1).contiguous()

    @property
    def new(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the rows themselves, [B * R, Hkv, D]."""
        count = self.q.shape[2]
        tails = (x[:, :, -count:].transpose(1, 2).flatten(0, 1) for x in (self.keys, self.values))
        keys, values = (tail.contiguous() for tail in tails)
        return keys, values


@dataclass(frozen=True)
class Shape:
    """A layer's number, requests, positions committed before each one's rows, and those rows."""

    layer: int
    requests: int
    committed: int
    count: int

    def within(self, context: Context) -> Shape:
        """The same, as small as the interpreter wants it."""
        if not context.interpreted:
            return self
        return Shape(self.layer % 2, 1, min(self.committed, 20), 8)

    def group(self, context: Context) -> str:
        """In words."""
        kind = "sliding" if context.sizes.geometry.is_sliding(self.layer) else "full"
        behind = f" over {self.committed}" if self.committed else ", causal"
        return f"{self.requests} x {self.count} rows{behind}, {kind} layer"

    def work(self, context: Context) -> Work:
        """Of all requests."""
        rows, seen = self.requests * self.count, self.committed + self.count
        pairs = self.count * seen if self.committed else causal_pairs(self.count)
        keys = self.requests * seen
        geometry = context.sizes.geometry
        return attention(geometry, self.layer, rows, keys, self.requests * pairs)


def make(context: Context, shape: Shape) -> Dense:
    """Canvases behind committed positions, or prompts where there are none."""
    layer, requests, committed, count = shape.layer, shape.requests, shape.committed, shape.count
    geometry, page = context.sizes.geometry, context.sizes.page
    heads, kv, width = geometry.num_heads, geometry.kv_heads(layer), geometry.head_dim(layer)
    total = committed + count
    q = context.normal(requests, heads, count, width, std=width**-0.5)
    keys = context.normal(requests, kv, total, width, seed=1)
    values = context.normal(requests, kv, total, width, seed=2)
    # A canvas starts on a page of its own.
    start = -(-committed // page) * page
    place = torch.cat([torch.arange(committed), start + torch.arange(count)])
    each = -(-(start + count) // page)
    pages = torch.randperm(requests * each, generator=torch.Generator().manual_seed(0))
    table = pages.reshape(requests, each)
    slots = table[:, place // page] * page + place % page
    pool = torch.zeros(
        (requests * each, 2, page, kv, width), dtype=context.dtype, device=context.device
    )
    at = slots.to(context.device)
    for part, dense in enumerate((keys, values)):
        pool[at // page, part, at % page] = dense.transpose(1, 2)
    phase = Phase.DENOISE if committed else Phase.PREFILL
    segments = [[n * count, count, phase, committed, n] for n in range(requests)]
    return Dense(
        *(q, keys, values, pool),
        torch.tensor(segments, dtype=torch.int32, device=context.device),
        table.int().to(context.device),
        at[:, committed:].flatten().contiguous(),
        not committed,
    )


def _ours(context: Context, dense: Dense, layer: int) -> dict[str, Callable[[], Tensor]]:
    geometry, page = context.sizes.geometry, context.sizes.page
    window = geometry.window(layer)
    rows, (k, v) = dense.rows, dense.new
    shape = AttentionShape(geometry.num_heads, k.shape[1], k.shape[2], page, window)
    gpu = gpu_of(rows)
    positions = dense.table.shape[1] * page
    plan = split(plan_attention(shape, dtype_name(rows), gpu), len(rows), positions, gpu)
    pages = (dense.pool, dense.segments, dense.table)
    whole = (rows, k, v, dense.pool, dense.slots, dense.segments, dense.table, window)
    return {
        OURS: lambda: attention_op.attend(rows, *pages, plan),
        _PAGE_WRITE: lambda: attention_op.mixed_mask_paged_attention(*whole),
    }


def _sdpa(dense: Dense) -> dict[str, Callable[[], Tensor]]:
    """Grouped heads as torch offers them, and expanded ones, which more of its kernels take."""
    group = dense.q.shape[1] // dense.keys.shape[1]
    wide = [x.repeat_interleave(group, 1) for x in (dense.keys, dense.values)]

    def attend(keys: Tensor, values: Tensor, gqa: bool) -> Tensor:
        return F.scaled_dot_product_attention(
            dense.q, keys, values, is_causal=dense.causal, scale=1.0, enable_gqa=gqa
        )

    return {
        "sdpa grouped": lambda: attend(dense.keys, dense.values, gqa=True),
        "sdpa expanded": lambda: attend(wide[0], wide[1], gqa=False),
    }


def _flex(dense: Dense) -> Callable[[], Tensor]:
    from torch.nn.attention.flex_attention import (  # noqa: PLC0415 - takes a second to import
        create_block_mask,
        flex_attention,
    )

    mask = None
    if dense.causal:
        sizes = (dense.q.shape[2], dense.keys.shape[2])
        mask = create_block_mask(_before, None, None, *sizes, device=dense.q.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    call: Callable[[], Tensor] = lambda: compiled(  # noqa: E731
        *(dense.q, dense.keys, dense.values), block_mask=mask, scale=1.0, enable_gqa=True
    )
    return call


def _before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
    return key <= query


def dense(context: Context, shape: Sequence[int]) -> Iterator[Finding | Timed]:
    """One shape against SDPA: ours is right, then everybody's time."""
    asked = Shape(*shape).within(context)
    made, group = make(context, asked), asked.group(context)
    ours = _ours(context, made, asked.layer)
    truth = gpu_peers.attention_truth(made.q[:1], made.keys[:1], made.values[:1], made.causal)
    truth = truth.transpose(1, 2).flatten(0, 1)
    error = distance(ours[OURS]()[: len(truth)], truth)
    yield Finding(group, error, bound_of(context.dtype, context.interpreted))
    del truth
    for path, function in (ours | _sdpa(made)).items():
        yield context.timed(group, path, function, asked.work(context))


def flex(context: Context, shape: Sequence[int]) -> Iterator[Finding | Timed]:
    """The same shape by flex_attention, which torch may be unable to compile for 512-wide heads."""
    asked = Shape(*shape).within(context)
    made, group = make(context, asked), asked.group(context)
    try:
        call = _flex(made)
        truth = gpu_peers.attention_truth(made.q[:1], made.keys[:1], made.values[:1], made.causal)
        yield Finding(f"{group}, flex_attention", distance(call()[:1], truth))
        yield context.timed(group, "flex_attention", call, asked.work(context))
    except Exception as error:
        raise NotHereError(f"flex_attention does not run: {first_line(error)}") from error
