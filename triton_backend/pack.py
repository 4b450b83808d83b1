"""Turns a step into the arrays of one execution; NumPy only, decides nothing.

Every dynamic size is at least 2, since export fixes sizes of 0 and 1; what is added changes no
result: rows in no segment, empty segments, output rows nobody reads, labels of -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plugins.spec import NO_LABEL, NO_PAGE, NO_SLOT, SEGMENT_FIELDS, Phase
from triton_backend.core import Segment, Step

LEAST = 2

Ints = NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True)
class PackedStep:
    """Inputs of one execution: N rows, S segments, B table rows of P pages, K labels.

    Output rows are R of the read head, then D of the denoise head; a head nobody needs has none,
    and when neither has any, they are rows nobody wants. `soft_parts` are the runner's own arrays
    [W, H]: behind LEAST rows of zeros they make the table that `soft_index` points into.
    """

    token_ids: NDArray[np.int64]  # [N]
    positions: NDArray[np.int64]  # [N]
    phases: NDArray[np.int32]  # [N]
    slots_sliding: NDArray[np.int64]  # [N], page * page size + offset
    slots_full: NDArray[np.int64]  # [N]
    segments: NDArray[np.int32]  # [S, 5]
    table_sliding: NDArray[np.int32]  # [B, P]
    table_full: NDArray[np.int32]  # [B, P]
    soft_index: NDArray[np.int64]  # [N], which row of the soft table a row takes
    soft_parts: tuple[Any, ...]
    output_rows: NDArray[np.int64]  # [R + D], or [LEAST]
    label_ids: NDArray[np.int32]  # [R, K]
    temperature: NDArray[np.float32]  # [D]
    draws: NDArray[np.int64]  # [D, 3], seed, position and step of a row's random numbers


def pack(step: Step, page_size: int) -> PackedStep:
    """The arrays of a step; canvas rows are written to the scratch pages behind the committed."""
    segments = step.segments
    counts = _ints(len(segment.token_ids) for segment in segments)
    committed = _ints(segment.committed for segment in segments)
    phase = _ints(segment.phase for segment in segments)
    first = np.cumsum(counts) - counts
    rows = int(counts.sum())
    sliding = _table([segment.pages.sliding for segment in segments])
    full = _table([segment.pages.full for segment in segments])
    # A canvas starts on a page of its own, so that it never touches a committed one.
    aligned = -(-committed // page_size) * page_size
    start: Ints = np.where(phase == Phase.DENOISE, aligned, committed).astype(np.int64)
    place = _counted(start, counts)
    page = place // page_size
    within = place - page * page_size
    cell = np.repeat(np.arange(len(counts)) * full.shape[1], counts) + page
    read_rows, label_ids = _reads(segments, first)
    denoise_rows, temperature, draws = _denoised(segments, first)
    soft_index, soft_parts = _soft(segments, first, rows)
    return PackedStep(
        token_ids=_grown(np.concatenate([_tokens(segment) for segment in segments]), 0),
        positions=_grown(_counted(committed, counts), 0),
        phases=_grown(np.repeat(phase.astype(np.int32), counts), int(Phase.PREFILL)),
        slots_sliding=_slots(cell, within, sliding, page_size),
        slots_full=_slots(cell, within, full, page_size),
        segments=_segment_rows(first, counts, phase, committed),
        table_sliding=sliding,
        table_full=full,
        soft_index=soft_index,
        soft_parts=soft_parts,
        output_rows=_grown(np.concatenate([read_rows, denoise_rows]), 0),
        label_ids=label_ids,
        temperature=temperature,
        draws=draws,
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _tokens(segment: Segment) -> Ints:
    return np.asarray(segment.token_ids, np.int64)


def _counted(starts: Ints, counts: Ints) -> Ints:
    """So many numbers from each start on, one after the other."""
    ends: Ints = np.cumsum(counts)
    ahead: Ints = starts - (ends - counts)
    numbers: Ints = np.repeat(ahead, counts)
    numbers += np.arange(len(numbers))
    return numbers


def _grown(values: NDArray[_T], filler: int) -> NDArray[_T]:
    """The array with `filler` appended until it has LEAST entries."""
    missing = LEAST - len(values)
    return np.append(values, np.full(missing, filler, values.dtype)) if missing > 0 else values


def _segment_rows(first: Ints, counts: Ints, phase: Ints, committed: Ints) -> NDArray[np.int32]:
    columns = (first, counts, phase, committed, np.arange(len(first)))
    rows = np.zeros((max(len(first), LEAST), SEGMENT_FIELDS), np.int32)
    rows[: len(first)] = np.stack(columns, axis=1)
    return rows


def _table(rows: Sequence[tuple[int, ...]]) -> NDArray[np.int32]:
    width = max(map(len, rows))
    table = np.full((max(len(rows), LEAST), max(width, LEAST)), NO_PAGE, np.int32)
    for row, pages in zip(table, rows, strict=False):
        row[: len(pages)] = pages
    return table


def _slots(cell: Ints, offset: Ints, table: NDArray[np.int32], page_size: int) -> NDArray[np.int64]:
    """Slots of rows that lie in these cells of a table, at these offsets of their pages."""
    pages = table.reshape(-1).take(cell).astype(np.int64)
    assert pages.min() != NO_PAGE, "a row has no page to write to"
    return _grown(pages * page_size + offset, NO_SLOT)


def _reads(segments: Sequence[Segment], first: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """Rows of the read head and their labels."""
    counts = _ints(len(segment.slots) for segment in segments)
    slots = _ints(chain.from_iterable(segment.slots for segment in segments))
    if not len(slots):
        return slots, np.empty((0, LEAST), np.int32)
    columns = max(segment.label_columns for segment in segments)
    labels = np.full((max(len(slots), LEAST), max(columns, LEAST)), NO_LABEL, np.int32)
    wanted = chain.from_iterable(segment.label_ids for segment in segments)
    for row, ids in zip(labels, wanted, strict=False):
        row[: len(ids)] = ids
    return _grown(np.repeat(first, counts) + slots, 0), labels


def _denoised(
    segments: Sequence[Segment], first: Ints
) -> tuple[Ints, NDArray[np.float32], NDArray[np.int64]]:
    """Rows of the denoise head, their temperatures, and what their random numbers are keyed by."""
    chosen = [n for n, segment in enumerate(segments) if segment.denoises]
    if not chosen:
        return np.empty(0, np.int64), np.empty(0, np.float32), np.empty((0, 3), np.int64)
    temperatures, seeds, steps = _settings([segments[n] for n in chosen])
    widths = _ints(len(segments[n].token_ids) for n in chosen)
    committed = _ints(segments[n].committed for n in chosen)
    rows = int(widths.sum())
    keys = np.zeros((max(rows, LEAST), 3), np.int64)
    keys[:rows, 0] = np.repeat(seeds, widths)
    keys[:rows, 1] = _counted(committed, widths)
    keys[:rows, 2] = np.repeat(steps, widths)
    temperature = np.ones(len(keys), np.float32)
    temperature[:rows] = np.repeat(temperatures, widths)
    return _grown(_counted(first[chosen], widths), 0), temperature, keys


def _settings(
    segments: Sequence[Segment],
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Temperature, seed (as the engine's signed number) and step of each canvas."""
    both = [(segment.denoising, segment.state) for segment in segments]
    steps = [0 if state is None else state.steps for _, state in both]
    denoisings = [denoising for denoising, _ in both if denoising is not None]
    temperatures = [one.temperature(step) for one, step in zip(denoisings, steps, strict=True)]
    seeds = np.array([one.seed for one in denoisings], np.uint64).view(np.int64)
    return np.array(temperatures, np.float32), seeds, np.array(steps, np.int64)


def _soft(
    segments: Sequence[Segment], first: Ints, rows: int
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Which row of the soft table each row takes; row 0 is no signal, exactly zero."""
    index, parts = np.zeros(max(rows, LEAST), np.int64), []
    taken = LEAST
    for start, segment in zip(first.tolist(), segments, strict=True):
        if segment.state is not None and segment.state.soft is not None:
            width = len(segment.token_ids)
            index[start : start + width] = np.arange(taken, taken + width)
            parts.append(segment.state.soft)
            taken += width
    return index, tuple(parts)
