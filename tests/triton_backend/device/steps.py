"""Packed steps of any phase mix over random pools, made without a scheduler.

Sliding and full layers get tables of their own, so that a runner which mixes them up shows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from build_engine.contract import EngineContract
from plugins.spec import NO_LABEL, NO_PAGE, NO_SLOT, SEED, Phase
from triton_backend.pack import LEAST, PackedStep
from triton_backend.runner import StepOutput

FULL_PAGES, SLIDING_PAGES = 320, 288


@dataclass(frozen=True)
class Part:
    """One segment: `reads` slots with labels, or all its rows denoised, with or without `soft`."""

    phase: Phase
    count: int
    committed: int = 0
    reads: int = 0
    denoised: bool = False
    soft: bool = False


def make_step(contract: EngineContract, parts: list[Part], seed: int = 0) -> PackedStep:
    """The packed step of these segments, tokens, labels, draws and pages drawn at random."""
    drawn, page = np.random.default_rng(seed), contract.page_size
    counts = {"sliding": SLIDING_PAGES, "full": FULL_PAGES}
    free = {group: list(drawn.permutation(count)) for group, count in counts.items()}
    width = max(LEAST, *(-(-part.committed // page) - (-part.count // page) for part in parts))
    tables = {group: np.full((max(len(parts), LEAST), width), NO_PAGE, np.int32) for group in free}
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    segments = np.zeros((max(len(parts), LEAST), 5), np.int32)
    first, taken = 0, LEAST
    for n, part in enumerate(parts):
        canvas = part.phase == Phase.DENOISE
        start = -(-part.committed // page) * page if canvas else part.committed
        place = start + np.arange(part.count)
        for group, table in tables.items():
            held = -(-(start + part.count) // page)
            table[n, :held] = [free[group].pop() for _ in range(held)]
            slots = table[n, place // page].astype(np.int64) * page + place % page
            columns[f"slots_{group}"].append(slots)
        rows = first + np.arange(part.count)
        columns["positions"].append(part.committed + np.arange(part.count))
        columns["phases"].append(np.full(part.count, int(part.phase)))
        columns["soft_index"].append(taken + np.arange(part.count) if part.soft else 0 * rows)
        columns["reads"].append(drawn.permutation(rows)[: part.reads])
        columns["denoised"].append(rows[: part.count if part.denoised else 0])
        segments[n] = (first, part.count, int(part.phase), part.committed, n)
        first += part.count
        taken += part.count if part.soft else 0
    made = {name: np.concatenate(values).astype(np.int64) for name, values in columns.items()}
    made["token_ids"] = drawn.integers(0, contract.geometry.vocab_size, first)
    for name, filler in _FILLERS.items():
        made[name] = np.append(made[name], np.full(max(0, LEAST - first), filler))
    return PackedStep(
        **{name: made[name] for name in _FILLERS if name != "phases"},
        phases=made["phases"].astype(np.int32),
        segments=segments,
        table_sliding=tables["sliding"],
        table_full=tables["full"],
        soft_parts=_soft(drawn, contract, parts),
        **_heads(drawn, contract, made["reads"], made["denoised"]),
    )


_COLUMNS = ("positions", "phases", "slots_sliding", "slots_full", "soft_index", "reads", "denoised")
_FILLERS = {
    "token_ids": 0, "positions": 0, "phases": 0, "slots_sliding": NO_SLOT, "slots_full": NO_SLOT,
    "soft_index": 0,
}  # fmt: skip


def _soft(drawn, contract, parts) -> tuple[np.ndarray, ...]:
    width = contract.geometry.hidden_size
    shapes = [(part.count, width) for part in parts if part.soft]
    return tuple(drawn.standard_normal(shape).astype(np.float32) for shape in shapes)


def _heads(drawn, contract, reads, denoised) -> dict[str, np.ndarray]:
    """Between one and four labels a row; a head's rows are at least LEAST or none."""
    vocab = contract.geometry.vocab_size
    reads, denoised = (
        np.append(rows, np.zeros(LEAST - 1, np.int64)) if len(rows) == 1 else rows
        for rows in (reads, denoised)
    )
    labels = drawn.integers(0, vocab, (len(reads), 4)).astype(np.int32)
    labels[np.arange(4) > drawn.integers(0, 4, (len(reads), 1))] = NO_LABEL
    keys = drawn.integers(0, 100, (len(denoised), 3))
    keys[:, SEED] = drawn.integers(-(1 << 62), 1 << 62, len(denoised))
    return {
        "output_rows": np.concatenate([reads, denoised]) if len(reads) + len(denoised)
        else np.zeros(LEAST, np.int64),
        "label_ids": labels,
        "temperature": drawn.uniform(0.4, 1.0, len(denoised)).astype(np.float32),
        "draws": keys,
    }  # fmt: skip


def fill_pools(runner: Any, seed: int = 1) -> None:
    """Every layer's pool with the same random numbers in every runner."""
    drawn = np.random.default_rng(seed)
    runner.create_pools(FULL_PAGES, SLIDING_PAGES)
    for pool in runner.pools:
        values = drawn.standard_normal(pool.shape).astype(np.float32)
        pool[:] = values if isinstance(pool, np.ndarray) else torch.from_numpy(values)


def run(runner: Any, packed: PackedStep) -> StepOutput:
    """One execution, soft vectors in the runner's own kind of array."""
    if not isinstance(runner.pools[0], np.ndarray):
        device = runner.pools[0].device
        parts = tuple(torch.from_numpy(part).to(device) for part in packed.soft_parts)
        packed = dataclasses.replace(packed, soft_parts=parts)
    return runner.run(packed)


def differences(found: StepOutput, wanted: StepOutput) -> dict[str, float]:
    """Largest difference of every result by name; NumPy and torch alike."""
    worst = {}
    for head in ("read", "denoise"):
        mine, other = getattr(found, head), getattr(wanted, head)
        assert (mine is None) == (other is None), head
        for field in dataclasses.fields(mine) if mine is not None else ():
            one, two = (_array(getattr(output, field.name)) for output in (mine, other))
            assert one.shape == two.shape, field.name
            assert one.dtype == two.dtype, field.name
            assert np.array_equal(np.isneginf(one), np.isneginf(two)), field.name
            finite = np.isfinite(two)
            apart = np.abs(one[finite].astype(np.float64) - two[finite])
            worst[f"{head} {field.name}"] = float(apart.max(initial=0))
    return worst


def _array(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


MIXES: dict[str, list[Part]] = {
    "one prompt row": [Part(Phase.PREFILL, 1)],
    "a prompt of one page": [Part(Phase.PREFILL, 8)],
    "a chunk behind others": [Part(Phase.PREFILL, 9, committed=23)],
    "a read of one slot": [Part(Phase.DENOISE, 16, committed=20, reads=1)],
    "a read without a prompt": [Part(Phase.DENOISE, 5, reads=3)],
    "a first denoising step": [Part(Phase.DENOISE, 16, committed=16, denoised=True)],
    "a canvas of one position": [Part(Phase.DENOISE, 1, committed=3, denoised=True, soft=True)],
    "a later denoising step": [Part(Phase.DENOISE, 16, committed=40, denoised=True, soft=True)],
    "a commit and the next canvas": [
        Part(Phase.COMMIT, 16, committed=24),
        Part(Phase.DENOISE, 16, committed=40, denoised=True),
    ],
    "every phase at once": [
        Part(Phase.PREFILL, 13),
        Part(Phase.PREFILL, 3, committed=61),
        Part(Phase.DENOISE, 16, committed=17, reads=7),
        Part(Phase.COMMIT, 16, committed=8),
        Part(Phase.DENOISE, 16, committed=33, denoised=True, soft=True),
        Part(Phase.DENOISE, 11, committed=48, denoised=True),
        Part(Phase.DENOISE, 16, committed=9, reads=16),
    ],
}
"""Segments that share one execution, by what they are."""
