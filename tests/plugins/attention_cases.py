"""Builds one attention call from a list of requests, with everything unused poisoned."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plugins.spec import NO_PAGE, NO_SLOT, Phase

PAGE = 16


@dataclass(frozen=True)
class Part:
    """One segment of a request."""

    phase: Phase
    committed: int
    count: int


@dataclass(frozen=True)
class Heads:
    query: int = 4
    kv: int = 2
    width: int = 64


@dataclass(frozen=True)
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    kv_pool: Tensor
    slots: Tensor
    segments: Tensor
    block_table: Tensor
    window: int

    def arguments(self) -> list:
        return [*vars(replace(self, kv_pool=self.kv_pool.clone())).values()]

    def run(self, op=None) -> Tensor:
        return (op or torch.ops.dg.mixed_mask_paged_attention)(*self.arguments())

    def only(self, segments: list[int]) -> "Case":
        """The rows of some segments alone, over the same pages."""
        rows, kept = [], []
        for first, count, *rest in self.segments[segments].tolist():
            kept.append([len(rows), count, *rest])
            rows += range(first, first + count)
        tensors = {name: getattr(self, name)[rows] for name in ("q", "k", "v", "slots")}
        return replace(self, segments=torch.tensor(kept, dtype=torch.int32), **tensors)

    def rows_of(self, segment: int) -> slice:
        first, count = self.segments[segment, :2].tolist()
        return slice(first, first + count)


def read_pages(part: Part, window: int) -> tuple[set[int], int]:
    """Table columns that hold committed or new positions a part may read, and its scratch pages."""
    first = max(0, part.committed - window + 1) if window else 0
    last = part.committed if part.phase == Phase.DENOISE else part.committed + part.count
    scratch = -(-part.count // PAGE) if part.phase == Phase.DENOISE else 0
    return set(range(first // PAGE, -(-last // PAGE))), scratch


def make_case(
    requests: list[list[Part]],
    heads: Heads = Heads(),
    window: int = 0,
    dtype: torch.dtype = torch.float32,
    padding: int = 3,
    seed: int = 0,
) -> Case:
    """One table row per request; pages nobody reads are absent from the table and hold NaN."""
    generator = torch.Generator().manual_seed(seed)
    width = max(-(-(p.committed + p.count) // PAGE) + 1 for parts in requests for p in parts) + 2
    pages = torch.randperm(width * len(requests) + 4, generator=generator).tolist()
    table = torch.full((len(requests), width), NO_PAGE, dtype=torch.int32)
    pool = torch.full((len(pages), 2, PAGE, heads.kv, heads.width), torch.nan)
    segments, slots = [], []
    for row, parts in enumerate(requests):
        for part in parts:
            columns, scratch = read_pages(part, window)
            start = -(-part.committed // PAGE)
            columns |= set(range(start, start + scratch))
            for column in columns:
                if table[row, column] == NO_PAGE:
                    table[row, column] = pages.pop()
            segments.append([len(slots), part.count, part.phase, part.committed, row])
            origin = start * PAGE if part.phase == Phase.DENOISE else part.committed
            for position in range(origin, origin + part.count):
                slots.append(int(table[row, position // PAGE]) * PAGE + position % PAGE)
        for position in range(parts[0].committed):
            page = table[row, position // PAGE]
            if page != NO_PAGE and (not window or position > parts[0].committed - window):
                pool[page, :, position % PAGE] = torch.randn(
                    2, heads.kv, heads.width, generator=generator
                )
    slots += [NO_SLOT] * padding
    rows = len(slots)
    q = torch.randn(rows, heads.query, heads.width, generator=generator) * 2 * heads.width**-0.5
    k, v = torch.randn(2, rows, heads.kv, heads.width, generator=generator)
    return Case(
        q.to(dtype),
        k.to(dtype),
        v.to(dtype),
        pool.to(dtype),
        torch.tensor(slots, dtype=torch.int64),
        torch.tensor(segments, dtype=torch.int32).reshape(-1, 5),
        table,
        window,
    )
