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
    soft_rows: NDArray[np.int64]  # [C]
    soft: NDArray[np.float32]  # [C, H]
    output_rows: NDArray[np.int64]  # [R]
    label_ids: NDArray[np.int32]  # [R, K]
    num_outputs: int


def pack(step: Step, page_size: int, hidden_size: int) -> PackedStep:
    """The arrays of a step; canvas rows are written to the scratch pages behind the committed."""
    segments = step.segments
    counts = _ints((len(segment.token_ids) for segment in segments), np.int64)
    committed = _ints((segment.committed for segment in segments), np.int64)
    phase = _ints((segment.phase for segment in segments), np.int32)
    first = np.cumsum(counts) - counts
    rows = int(counts.sum())
    owner = np.repeat(np.arange(len(segments)), counts)
    offset = np.arange(rows) - first[owner]
    table = _table(segments)
    slots = _slots(phase, committed, owner, offset, table, page_size)
    output_rows, label_ids = _outputs(segments, first)
    return PackedStep(
        token_ids=_grown(_ints(chain.from_iterable(s.token_ids for s in segments), np.int64), 0),
        positions=_grown(committed[owner] + offset, 0),
        phases=_grown(phase[owner], int(Phase.PREFILL)),
        slots_sliding=slots,
        slots_full=slots,
        segments=_segment_rows(first, counts, phase, committed),
        table_sliding=table,
        table_full=table,
        soft_rows=np.zeros(LEAST, np.int64),
        soft=np.zeros((LEAST, hidden_size), np.float32),
        output_rows=_grown(output_rows, 0),
        label_ids=label_ids,
        num_outputs=len(output_rows),
    )


def _ints(values: Iterable[int], dtype: type[np.integer]) -> NDArray:
    return np.fromiter(values, dtype)


def _grown(values: NDArray, filler: int) -> NDArray:
    """The array with `filler` appended until it has LEAST entries."""
    missing = LEAST - len(values)
    return np.append(values, np.full(missing, filler, values.dtype)) if missing > 0 else values


def _segment_rows(first: NDArray, counts: NDArray, phase: NDArray, committed: NDArray) -> NDArray:
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
    phase: NDArray,
    committed: NDArray,
    owner: NDArray,
    offset: NDArray,
    table: NDArray,
    page_size: int,
) -> NDArray[np.int64]:
    # A canvas starts on a page of its own, so that it never touches a committed one.
    start = np.where(phase == Phase.DENOISE, -(-committed // page_size) * page_size, committed)
    place = start[owner] + offset
    pages = table[owner, place // page_size].astype(np.int64)
    assert (pages != NO_PAGE).all(), "a row has no page to write to"
    return _grown(pages * page_size + place % page_size, NO_SLOT)


def _outputs(
    segments: Sequence[Segment], first: NDArray
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    counts = _ints((len(segment.slots) for segment in segments), np.int64)
    slots = _ints(chain.from_iterable(segment.slots for segment in segments), np.int64)
    columns = max(segment.label_columns for segment in segments)
    labels = np.full((max(len(slots), LEAST), max(columns, LEAST)), NO_LABEL, np.int32)
    wanted = chain.from_iterable(segment.label_ids for segment in segments)
    for row, ids in zip(labels, wanted, strict=False):
        row[: len(ids)] = ids
    return np.repeat(first, counts) + slots, labels
