"""Reads canvases, slots and labels of a tensor-level read, or says what is wrong with them.

One canvas, or many one after the other with counts that say where each ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.spec import NO_LABEL
from triton_backend import fields
from triton_backend.core import Canvas, RequestError
from triton_backend.fields import Inputs
from triton_backend.limits import RequestLimits

MAX_CANVASES = 1024
MAX_SLOTS = 1 << 14
"""Of all canvases of a request together."""

FAN_OUT = ("canvas_lengths", "slot_counts", "question_ids", "question_lengths")
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class _Given:
    """The arrays of one canvas; `where` is what a message adds to their names."""

    ids: Ids
    slots: Ids
    labels: Ids
    own: Ids
    where: str = ""


def read_canvases(inputs: Inputs, limits: RequestLimits) -> tuple[Canvas, ...]:
    """The canvases that `canvas_ids`, `slots` and `label_ids` describe, in the order given.

    Raises:
        RequestError: sizes, counts, ids, slots or labels that cannot be.
    """
    table = fields.table_of_ids(inputs, "label_ids")
    if "canvas_lengths" in inputs:
        return tuple(_canvas(given, limits) for given in _many(inputs, table))
    for name in FAN_OUT:
        if name in inputs:
            raise RequestError(name, "is given without canvas_lengths", "it belongs to several")
    ids, slots = (fields.row_of_ids(inputs, name) for name in ("canvas_ids", "slots"))
    return (_canvas(_Given(ids, slots, table, np.empty(0, np.int32)), limits),)


def _many(inputs: Inputs, table: Ids) -> list[_Given]:
    count = fields.row_of_ids(inputs, "canvas_lengths").size
    if not 1 <= count <= MAX_CANVASES:
        limit = f"allowed are 1 to {MAX_CANVASES}"
        raise RequestError("canvas_lengths", f"has {count} canvases", limit)
    if "slot_counts" not in inputs:
        raise RequestError("slot_counts", "is missing", f"{count} canvases need one each")
    ids = _split(inputs, "canvas_ids", "canvas_lengths", count)
    slots = _split(inputs, "slots", "slot_counts", count)
    total = sum(part.size for part in slots)
    if total > MAX_SLOTS:
        raise RequestError("slots", f"has {total} positions", f"the limit is {MAX_SLOTS} together")
    if len(table) != total:
        raise RequestError("label_ids", f"has {len(table)} rows", f"{total} slots need one each")
    labels = np.split(table, np.cumsum([part.size for part in slots])[:-1])
    parts = zip(ids, slots, labels, _questions(inputs, count), strict=True)
    return [_Given(*part, f" of canvas {n}") for n, part in enumerate(parts)]


def _questions(inputs: Inputs, count: int) -> list[Ids]:
    """Each canvas's own tokens of the prompt, which may be none."""
    names = ("question_ids", "question_lengths")
    given = [name for name in names if name in inputs]
    if len(given) == 1:
        raise RequestError(given[0], f"is given without {names[given[0] == names[0]]}")
    if not given:
        return [np.empty(0, np.int32)] * count
    return _split(inputs, *names, count)


def _split(inputs: Inputs, name: str, counted: str, count: int) -> list[Ids]:
    """A row of numbers in so many parts, as another input counts them."""
    values, counts = fields.row_of_ids(inputs, name), fields.row_of_ids(inputs, counted)
    if counts.size != count:
        raise RequestError(counted, f"has {counts.size} counts", f"{count} canvases need one each")
    if (counts < 0).any():
        at = int(np.flatnonzero(counts < 0)[0])
        raise RequestError(counted, f"holds {counts[at]} at position {at}", "counts start at 0")
    ends = np.cumsum(counts, dtype=np.int64)
    if ends[-1] != values.size:
        raise RequestError(counted, f"adds up to {ends[-1]}", f"{name} has {values.size}")
    return np.split(values, ends[:-1])


def _canvas(given: _Given, limits: RequestLimits) -> Canvas:
    name = f"canvas_ids{given.where}"
    if not 1 <= given.ids.size <= limits.max_canvas:
        limit = f"allowed are 1 to {limits.max_canvas}"
        raise RequestError(name, f"has {given.ids.size} tokens", limit)
    fields.check_below(given.ids, limits.vocab_size, name, "the vocabulary")
    own = f"question_ids{given.where}"
    fields.check_below(given.own, limits.vocab_size, own, "the vocabulary")
    _check_slots(given, limits.max_slots)
    labels = _labels(given, limits)
    ids, slots, own_ids = (tuple(part.tolist()) for part in (given.ids, given.slots, given.own))
    return Canvas(ids, slots, labels, given.labels.shape[1], prompt_ids=own_ids)


def _check_slots(given: _Given, most: int) -> None:
    name, slots = f"slots{given.where}", given.slots
    if not 1 <= slots.size <= most:
        raise RequestError(name, f"has {slots.size} positions", f"allowed are 1 to {most}")
    fields.check_below(slots, given.ids.size, name, "the canvas")
    unique, counts = np.unique(slots, return_counts=True)
    if unique.size < slots.size:
        twice = int(unique[counts > 1][0])
        raise RequestError(name, f"holds {twice} more than once", "each position counts once")


def _labels(given: _Given, limits: RequestLimits) -> tuple[tuple[int, ...], ...]:
    rows, columns = given.labels.shape
    name, slots = f"label_ids{given.where}", given.slots.size
    if rows != slots:
        raise RequestError(name, f"has {rows} rows", f"{slots} slots need one each")
    if not 1 <= columns <= limits.max_labels:
        limit = f"allowed are 1 to {limits.max_labels}"
        raise RequestError(name, f"has {columns} columns", limit)
    return tuple(
        _row(f"{name} row {at}", row.tolist(), limits.vocab_size)
        for at, row in enumerate(given.labels)
    )


def _row(name: str, row: list[int], vocab_size: int) -> tuple[int, ...]:
    count = row.index(NO_LABEL) if NO_LABEL in row else len(row)
    labels = row[:count]
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
