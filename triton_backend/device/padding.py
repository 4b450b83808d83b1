"""Pads a packed step to sizes that recur; NumPy only. What is added changes no result.

Rows in no segment and without a slot, empty segments, table rows of no page, output rows that are
cut off again, labels of -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plugins.spec import NO_LABEL, NO_PAGE, NO_SLOT, ROW_COUNT, Phase
from triton_backend.device.buckets import bucket, calls
from triton_backend.pack import LEAST, PackedStep

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Calls:
    """Rows of each call of the read head and of the denoise head, padding included."""

    reads: tuple[int, ...]
    denoised: tuple[int, ...]


def plan_calls(packed: PackedStep, per_call: Mapping[str, int], whole: Mapping[str, int]) -> Calls:
    """How the heads are called: at most `per_call` rows each, of at most `whole` in all."""
    counts = {"reads": len(packed.label_ids), "denoised": len(packed.temperature)}
    return Calls(**{name: calls(n, per_call[name], whole[name]) for name, n in counts.items()})


def step_arrays(packed: PackedStep, plan: Calls, most: Mapping[str, int]) -> Arrays:
    """Every input of the step but `soft` and the pools, by binding name; `lanes` among them."""
    rows = bucket(len(packed.token_ids), most["rows"])
    segments = bucket(len(packed.segments), most["segments"])
    tables = (packed.table_sliding, packed.table_full)
    width = bucket(max(table.shape[1] for table in tables), most["pages_per_row"])
    table_rows = bucket(max(len(table) for table in tables), most["tables"])
    longest = max(int(packed.segments[:, ROW_COUNT].max()), 1)
    return {
        "token_ids": _grown(packed.token_ids, (rows,), 0),
        "positions": _grown(packed.positions, (rows,), 0),
        "phases": _grown(packed.phases, (rows,), int(Phase.PREFILL)),
        "slots_sliding": _grown(packed.slots_sliding, (rows,), NO_SLOT),
        "slots_full": _grown(packed.slots_full, (rows,), NO_SLOT),
        "segments": _grown(packed.segments, (segments, packed.segments.shape[1]), 0),
        "table_sliding": _grown(packed.table_sliding, (table_rows, width), NO_PAGE),
        "table_full": _grown(packed.table_full, (table_rows, width), NO_PAGE),
        "soft_index": _grown(packed.soft_index, (rows,), 0),
        "output_rows": _output_rows(packed, plan),
        "lanes": np.arange(bucket(longest, most["lanes"])),
    }


def soft_rows(packed: PackedStep, most: Mapping[str, int]) -> int:
    """Rows of the padded soft table."""
    return bucket(LEAST + sum(len(part) for part in packed.soft_parts), most["soft"])


def head_arrays(packed: PackedStep, plan: Calls, most: Mapping[str, int]) -> Arrays:
    """The read head's inputs but `hidden`, for all its calls."""
    columns = bucket(packed.label_ids.shape[1], most["labels"])
    return {"label_ids": _grown(packed.label_ids, (sum(plan.reads), columns), NO_LABEL)}


def denoise_arrays(packed: PackedStep, plan: Calls) -> Arrays:
    """The denoise head's inputs but `hidden`, for all its calls."""
    rows = sum(plan.denoised)
    return {
        "temperature": _grown(packed.temperature, (rows,), 1),
        "draws": _grown(packed.draws, (rows, packed.draws.shape[1]), 0),
    }


def _output_rows(packed: PackedStep, plan: Calls) -> NDArray[np.int64]:
    """Rows of the read head, padded, then rows of the denoise head, padded."""
    reads, denoised = sum(plan.reads), sum(plan.denoised)
    made = np.zeros(reads + denoised or LEAST, np.int64)
    count, drawn = len(packed.label_ids), len(packed.temperature)
    made[:count] = packed.output_rows[:count]
    made[reads : reads + drawn] = packed.output_rows[count : count + drawn]
    return made


def _grown(values: NDArray[Any], shape: tuple[int, ...], filler: int) -> NDArray[Any]:
    grown = np.full(shape, filler, values.dtype)
    grown[tuple(slice(size) for size in values.shape)] = values
    return grown
