"""Turns a step into the arrays of one execution; NumPy only, decides nothing.

Every dynamic size is at least 2, since export fixes sizes of 0 and 1; what is added changes no
result: rows in no segment, empty segments, output rows nobody reads, labels of -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from plugins.spec import NO_LABEL, NO_PAGE, NO_SLOT, SEGMENT_FIELDS, Phase
from triton_backend.core import Segment, Step

LEAST = 2

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PackedStep:
    """Inputs of one execution: N rows, S segments, B table rows of P pages, R outputs, K labels.

    `num_outputs` is how many of the R output rows somebody reads.
    """

    token_ids: NDArray[np.int64]  # [N]
    positions: NDArray[np.int64]  # [N]
    phases: NDArray[np.int32]  # [N]
    slots_sliding: NDArray[np.int64]  # [N], page * page size + offset
    slots_full: NDArray[np.int64]  # [N]
    segments: NDArray[np.int32]  # [S, 5]
    table_sliding: NDArray[np.int32]  # [B, P]
    table_full: NDArray[np.int32]  # [B, P]
    soft_index: NDArray[np.int64]  # [N], which of the soft vectors a row takes
    soft: NDArray[np.float32]  # [C, H], the first is zero
    output_rows: NDArray[np.int64]  # [R]
    label_ids: NDArray[np.int32]  # [R, K]
    num_outputs: int


def pack(step: Step, page_size: int, hidden_size: int) -> PackedStep:
    """The arrays of a step; canvas rows are written to the scratch pages behind the committed."""
    segments = step.segments
    counts = _ints(len(segment.token_ids) for segment in segments)
    committed = _ints(segment.committed for segment in segments)
    phase = _ints(segment.phase for segment in segments)
    first = np.cumsum(counts) - counts
    rows = int(counts.sum())
    owner = np.repeat(np.arange(len(segments)), counts)
    offset = np.arange(rows) - first[owner]
    table = _table(segments)
    slots = _slots(phase, committed, owner, offset, table, page_size)
    output_rows, label_ids = _outputs(segments, first)
    return PackedStep(
        token_ids=_grown(_ints(chain.from_iterable(s.token_ids for s in segments)), 0),
        positions=_grown(committed[owner] + offset, 0),
        phases=_grown(phase[owner], int(Phase.PREFILL)).astype(np.int32),
        slots_sliding=slots,
        slots_full=slots,
        segments=_segment_rows(first, counts, phase, committed),
        table_sliding=table,
        table_full=table,
        soft_index=np.zeros(max(rows, LEAST), np.int64),
        soft=np.zeros((LEAST, hidden_size), np.float32),
        output_rows=_grown(output_rows, 0),
        label_ids=label_ids,
        num_outputs=len(output_rows),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _grown(values: Ints, filler: int) -> Ints:
    """The array with `filler` appended until it has LEAST entries."""
    missing = LEAST - len(values)
    return np.append(values, np.full(missing, filler, values.dtype)) if missing > 0 else values


def _segment_rows(first: Ints, counts: Ints, phase: Ints, committed: Ints) -> NDArray[np.int32]:
    columns = (first, counts, phase, committed, np.arange(len(first)))
    rows = np.zeros((max(len(first), LEAST), SEGMENT_FIELDS), np.int32)
    rows[: len(first)] = np.stack(columns, axis=1)
    return rows


def _table(segments: Sequence[Segment]) -> NDArray[np.int32]:
    width = max(len(segment.pages) for segment in segments)
    table = np.full((max(len(segments), LEAST), max(width, LEAST)), NO_PAGE, np.int32)
    for row, segment in zip(table, segments, strict=False):
        row[: len(segment.pages)] = segment.pages
    return table


def _slots(
    phase: Ints,
    committed: Ints,
    owner: Ints,
    offset: Ints,
    table: NDArray[np.int32],
    page_size: int,
) -> NDArray[np.int64]:
    # A canvas starts on a page of its own, so that it never touches a committed one.
    start = np.where(phase == Phase.DENOISE, -(-committed // page_size) * page_size, committed)
    place = start[owner] + offset
    pages = table[owner, place // page_size].astype(np.int64)
    assert (pages != NO_PAGE).all(), "a row has no page to write to"
    return _grown(pages * page_size + place % page_size, NO_SLOT)


def _outputs(
    segments: Sequence[Segment], first: Ints
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    counts = _ints(len(segment.slots) for segment in segments)
    slots = _ints(chain.from_iterable(segment.slots for segment in segments))
    columns = max(segment.label_columns for segment in segments)
    labels = np.full((max(len(slots), LEAST), max(columns, LEAST)), NO_LABEL, np.int32)
    wanted = chain.from_iterable(segment.label_ids for segment in segments)
    for row, ids in zip(labels, wanted, strict=False):
        row[: len(ids)] = ids
    return np.repeat(first, counts) + slots, labels
