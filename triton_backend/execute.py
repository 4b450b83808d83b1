"""One execution from a step to its result: pack, run, read; keeps no state."""

from __future__ import annotations

import time

import numpy as np

from triton_backend.core import ErrorKind, RequestError, Segment, Step, StepResult
from triton_backend.denoise import CanvasState
from triton_backend.denoise import step as denoise_step
from triton_backend.pack import pack
from triton_backend.reads import ReadResult, read_slots, take_rows
from triton_backend.runner import DenoiseOutput, HeadOutput, Runner

Result = ReadResult | CanvasState | RequestError | None


def run(runner: Runner, step: Step) -> StepResult:
    """Executes a step; a canvas whose numbers are not finite fails alone."""
    contract = runner.contract
    started = time.monotonic()
    if step.saves or step.loads:
        runner.move(step.saves, step.loads)
    output = runner.run(pack(step, contract.page_size))
    results: list[Result] = []
    read_row = denoise_row = 0
    for segment in step.segments:
        if segment.denoises:
            assert output.denoise is not None
            width = len(segment.token_ids)
            rows = output.denoise.rows(denoise_row, width)
            results.append(_denoise(rows, segment, contract.geometry.vocab_size))
            denoise_row += width
        elif segment.slots:
            assert output.read is not None
            results.append(_read(output.read, read_row, segment))
            read_row += len(segment.slots)
        else:
            results.append(None)
    return StepResult(tuple(results), started, time.monotonic() - started)


def _read(head: HeadOutput, row: int, segment: Segment) -> ReadResult | RequestError:
    rows = slice(row, row + len(segment.slots))
    counts = np.array([len(ids) for ids in segment.label_ids])
    try:
        return read_slots(take_rows(head, rows, segment.label_columns), counts)
    except RequestError as error:
        return error


def _denoise(output: DenoiseOutput, segment: Segment, vocab_size: int) -> Result:
    assert segment.denoising is not None
    assert segment.state is not None
    numbers = (output.entropy, output.log_prob, output.candidate_log_prob)
    if not all(np.isfinite(values).all() for values in numbers):
        why = "the engine found no usable numbers for this request"
        return RequestError("denoising", "gave no finite numbers", why, ErrorKind.INTERNAL)
    positions = segment.committed + np.arange(len(segment.token_ids))
    return denoise_step(segment.state, output, segment.denoising, positions, vocab_size)
