"""Reads canvas, slots and labels of a tensor-level read, or says what is wrong with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plugins.spec import NO_LABEL
from triton_backend import fields
from triton_backend.core import Canvas, RequestError
from triton_backend.fields import Inputs
from triton_backend.limits import RequestLimits


def read_canvas(inputs: Inputs, limits: RequestLimits) -> Canvas:
    """The canvas that `canvas_ids`, `slots` and `label_ids` describe.

    Raises:
        RequestError: sizes, ids, slots or labels that cannot be.
    """
    ids = fields.row_of_ids(inputs, "canvas_ids")
    if not 1 <= ids.size <= limits.max_canvas:
        limit = f"allowed are 1 to {limits.max_canvas}"
        raise RequestError("canvas_ids", f"has {ids.size} tokens", limit)
    fields.check_below(ids, limits.vocab_size, "canvas_ids", "the vocabulary")
    slots = _slots(inputs, ids.size, limits.max_slots)
    table = fields.table_of_ids(inputs, "label_ids")
    labels = _labels(table, slots.size, limits)
    return Canvas(tuple(ids.tolist()), tuple(slots.tolist()), labels, table.shape[1])


def _slots(inputs: Inputs, width: int, most: int) -> NDArray[np.int32]:
    slots = fields.row_of_ids(inputs, "slots")
    if not 1 <= slots.size <= most:
        raise RequestError("slots", f"has {slots.size} positions", f"allowed are 1 to {most}")
    fields.check_below(slots, width, "slots", "the canvas")
    unique, counts = np.unique(slots, return_counts=True)
    if unique.size < slots.size:
        twice = int(unique[counts > 1][0])
        raise RequestError("slots", f"holds {twice} more than once", "each position counts once")
    return slots


def _labels(
    table: NDArray[np.int32], slots: int, limits: RequestLimits
) -> tuple[tuple[int, ...], ...]:
    rows, columns = table.shape
    if rows != slots:
        raise RequestError("label_ids", f"has {rows} rows", f"{slots} slots need one each")
    if not 1 <= columns <= limits.max_labels:
        limit = f"allowed are 1 to {limits.max_labels}"
        raise RequestError("label_ids", f"has {columns} columns", limit)
    return tuple(_row(at, row.tolist(), limits.vocab_size) for at, row in enumerate(table))


def _row(at: int, row: list[int], vocab_size: int) -> tuple[int, ...]:
    count = row.index(NO_LABEL) if NO_LABEL in row else len(row)
    labels = row[:count]
    name = f"label_ids row {at}"
    if not labels:
        raise RequestError(name, f"starts with {NO_LABEL}", "every slot needs at least 1 label")
    if any(label != NO_LABEL for label in row[count:]):
        raise RequestError(
            name, f"has a label behind {NO_LABEL} at column {count}", "padding comes last"
        )
    fields.check_below(np.array(labels, np.int32), vocab_size, name, "the vocabulary")
    if len(set(labels)) < count:
        twice = next(label for label in labels if labels.count(label) > 1)
        raise RequestError(name, f"holds {twice} more than once", "labels of a slot are distinct")
    return tuple(labels)
