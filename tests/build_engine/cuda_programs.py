"""A model of two layers, one of each kind, with a tiny checkpoint's weights; batches for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from build_engine import aoti
from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig, load_config
from build_engine.contract import FULL, SLIDING, Limits
from build_engine.job import Job, Options
from build_engine.model import StepInputs
from build_engine.weight_file import assign_weights
from plugins.spec import Phase

PAGE = 8
LIMITS = Limits(64, 8, 2048, 16, 64, 8)
_LAST = 5  # the tiny checkpoint's only layer that attends to everything

Part = tuple[Phase, int, int]
"""Phase, committed positions and rows of a segment."""


def job_of(checkpoint: Path, directory: Path, dtype: str = "float32") -> Job:
    """Nothing of it has been built."""
    options = Options()
    config = load_config(checkpoint)
    opened = Checkpoint(checkpoint)
    return Job(opened, config, LIMITS, PAGE, dtype, options, directory, lambda _: None)


def shortened(job: Job) -> Job:
    """The job with the checkpoint's first and last layer alone."""
    geometry = replace(job.config.geometry, num_layers=2, layer_types=(SLIDING, FULL))
    return replace(job, config=replace(job.config, geometry=geometry))


def functions(job: Job, tensors: dict[str, Tensor]) -> aoti.Functions:
    """Of the shortened job, with weights from the whole one's file."""
    last = f"layers.{_LAST}."
    moved = {n.replace(last, "layers.1."): t for n, t in tensors.items() if n.startswith(last)}
    made = aoti.functions(shortened(job))
    for model in (made.step, made.head, made.denoise):
        assign_weights(model, {**tensors, **moved})
    return made


def batch(config: ModelConfig, parts: list[Part]) -> StepInputs:
    """One segment and table row a part, over pools with something in every page."""
    generator = torch.Generator().manual_seed(sum(rows for _, _, rows in parts))
    geometry, pages = config.geometry, 16
    table = torch.randperm(len(parts) * pages, generator=generator).view(-1, pages).int()
    rows = sum(count for _, _, count in parts)
    slots, positions, phases, segments, first = [], [], [], [], 0
    for index, (phase, committed, count) in enumerate(parts):
        start = -(-committed // PAGE) * PAGE if phase == Phase.DENOISE else committed
        place = start + torch.arange(count)
        slots.append(table[index, place // PAGE].long() * PAGE + place % PAGE)
        positions.append(committed + torch.arange(count))
        phases.append(torch.full((count,), int(phase), dtype=torch.int32))
        segments.append([first, count, int(phase), committed, index])
        first += count
    segments.append([0] * 5)
    shapes = [(geometry.kv_heads(n), geometry.head_dim(n)) for n in range(geometry.num_layers)]
    pools = [torch.randn(table.numel(), 2, PAGE, *s, generator=generator) for s in shapes]
    soft = torch.randn(3, geometry.hidden_size, generator=generator)
    soft[0] = 0
    return StepInputs(
        token_ids=torch.randint(geometry.vocab_size, (rows,), generator=generator),
        positions=torch.cat(positions),
        phases=torch.cat(phases),
        slots_sliding=torch.cat(slots),
        slots_full=torch.cat(slots),
        segments=torch.tensor(segments, dtype=torch.int32),
        table_sliding=table,
        table_full=table.clone(),
        soft_index=torch.randint(3, (rows,), generator=generator),
        soft=soft,
        output_rows=torch.randint(rows, (max(2, rows // 2),), generator=generator),
        kv_pools=pools,
    )
