"""One execution from a step to its result: pack, run, read; keeps no state."""

from __future__ import annotations

import time

import numpy as np

from triton_backend.core import RequestError, Segment, Step, StepResult
from triton_backend.pack import pack
from triton_backend.reads import ReadResult, read_slots, take_rows
from triton_backend.runner import HeadOutput, Runner


def run(runner: Runner, step: Step) -> StepResult:
    """Executes a step; a canvas whose numbers are not finite fails alone."""
    contract = runner.contract
    started = time.monotonic()
    packed = pack(step, contract.page_size, contract.geometry.hidden_size)
    head = runner.run(packed)
    reads: list[ReadResult | RequestError | None] = []
    row = 0
    for segment in step.segments:
        reads.append(_read(head, row, segment) if segment.slots else None)
        row += len(segment.slots)
    return StepResult(tuple(reads), started, time.monotonic() - started)


def _read(head: HeadOutput, row: int, segment: Segment) -> ReadResult | RequestError:
    rows = slice(row, row + len(segment.slots))
    counts = np.array([len(ids) for ids in segment.label_ids])
    try:
        return read_slots(take_rows(head, rows, segment.label_columns), counts)
    except RequestError as error:
        return error
