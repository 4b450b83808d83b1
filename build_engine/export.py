"""Exports `Step` and both heads with every batch size dynamic; knows nothing of compilers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from build_engine import bindings
from build_engine.config import ModelConfig
from build_engine.contract import Limits
from build_engine.model import DenoiseHead, Head, Step, StepInputs
from plugins.spec import DRAW_FIELDS, ROW_COUNT, SEGMENT_FIELDS, Phase

_ROWS, _SEGMENTS, _TABLES, _PAGES_PER_ROW, _SOFT, _OUTPUTS, _LABELS, _POOL = 7, 3, 3, 2, 2, 2, 2, 4


class FlatStep(Step):
    """`Step` with its inputs side by side, in the order of `StepInputs`, as packages store them."""

    def forward(self, *inputs: Any) -> Tensor:
        """`Step` on `StepInputs(*inputs)`."""
        return super().forward(StepInputs(*inputs))


def _example_pools(config: ModelConfig, page_size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    geometry = config.geometry
    return [
        torch.zeros(_POOL, 2, page_size, geometry.kv_heads(n), geometry.head_dim(n), dtype=dtype)
        for n in range(geometry.num_layers)
    ]


def step_example(config: ModelConfig, page_size: int, dtype: torch.dtype) -> StepInputs:
    """Smallest valid inputs of `Step`: one prompt segment of `_ROWS` rows and padding."""
    rows = torch.arange(_ROWS)
    segments = torch.zeros(_SEGMENTS, SEGMENT_FIELDS, dtype=torch.int32)
    segments[0, ROW_COUNT] = _ROWS
    table = torch.zeros(_TABLES, _PAGES_PER_ROW, dtype=torch.int32)
    return StepInputs(
        token_ids=rows,
        positions=rows.clone(),
        phases=torch.full((_ROWS,), int(Phase.PREFILL), dtype=torch.int32),
        slots_sliding=rows.clone(),
        slots_full=rows.clone(),
        segments=segments,
        table_sliding=table,
        table_full=table.clone(),
        soft_index=torch.zeros(_ROWS, dtype=torch.int64),
        soft=torch.zeros(_SOFT, config.geometry.hidden_size, dtype=dtype),
        output_rows=torch.zeros(_OUTPUTS, dtype=torch.int64),
        kv_pools=_example_pools(config, page_size, dtype),
    )


def most_rows(limits: Limits) -> int:
    """Rows that the exported step takes at most; the example must be among them."""
    return max(limits.max_step_tokens, 16)


def export_step(
    model: FlatStep, limits: Limits, page_size: int, dtype: torch.dtype
) -> ExportedProgram:
    """The step function with rows, segments, tables, outputs and pool pages dynamic."""
    rows = Dim("rows", min=2, max=most_rows(limits))
    segments = Dim("segments", min=2, max=max(limits.max_segments, 16))
    tables, pages = Dim("tables", min=2, max=65536), Dim("pages_per_row", min=2, max=1 << 20)
    soft, outputs = Dim("soft", min=2, max=65536), Dim("outputs", min=2, max=65536)
    most_pages = 1 << 24
    pools = {
        name: Dim(name, min=2, max=most_pages)
        for name in (bindings.SLIDING_PAGES, bindings.FULL_PAGES)
    }
    row, table = {0: rows}, {0: tables, 1: pages}
    geometry = model.config.geometry
    layers = range(geometry.num_layers)
    shapes = (
        row, row, row, row, row, {0: segments}, table, table, row, {0: soft}, {0: outputs},
        [{0: pools[bindings.pages_of(geometry, n)]} for n in layers],
    )  # fmt: skip
    example = step_example(model.config, page_size, dtype)
    with torch.no_grad():
        return torch.export.export(
            model, tuple(example), dynamic_shapes={"inputs": shapes}, strict=False
        )


def head_example(hidden_size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Smallest inputs of `Head`."""
    labels = torch.zeros(_OUTPUTS, _LABELS, dtype=torch.int32)
    return torch.zeros(_OUTPUTS, hidden_size, dtype=dtype), labels


def export_head(model: Head, hidden_size: int, dtype: torch.dtype) -> ExportedProgram:
    """The read head with rows and labels dynamic."""
    outputs = Dim("outputs", min=2, max=65536)
    labels = Dim("labels", min=2, max=4096)
    example = head_example(hidden_size, dtype)
    shapes = ({0: outputs}, {0: outputs, 1: labels})
    with torch.no_grad():
        return torch.export.export(model, example, dynamic_shapes=shapes, strict=False)


def denoise_example(hidden_size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Smallest inputs of `DenoiseHead`."""
    draws = torch.zeros(_OUTPUTS, DRAW_FIELDS, dtype=torch.int64)
    return torch.zeros(_OUTPUTS, hidden_size, dtype=dtype), torch.ones(_OUTPUTS), draws


def export_denoise(model: DenoiseHead, hidden_size: int, dtype: torch.dtype) -> ExportedProgram:
    """The head of a denoising step with rows dynamic."""
    outputs = Dim("outputs", min=2, max=65536)
    example = denoise_example(hidden_size, dtype)
    shapes = ({0: outputs}, {0: outputs}, {0: outputs})
    with torch.no_grad():
        return torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
