"""One execution of every phase over pages with a history, as the arrays of an ONNX step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from build_engine import bindings
from build_engine.contract import EngineContract
from plugins.spec import NO_SLOT, Phase

# (phase, committed positions, rows): a prompt, a canvas and a commit, each over a page's edge.
PARTS = ((Phase.PREFILL, 11, 9), (Phase.DENOISE, 20, 16), (Phase.COMMIT, 8, 5))
PADDING = 3
OUTPUTS = (3, 9, 17, 24, 25, 29, 32)
"""Rows of every segment, and one of none."""


def mixed_step(contract: EngineContract) -> dict[str, NDArray[Any]]:
    """Every input of the step, pools included; all random and the same each time."""
    random, geometry, page = np.random.default_rng(0), contract.geometry, contract.page_size
    width = max(-(-(committed + count) // page) for _, committed, count in PARTS) + 2
    table = 1 + np.arange(len(PARTS) * width, dtype=np.int32).reshape(len(PARTS), width)
    segments, positions, phases, slots = [], [], [], []
    for row, (phase, committed, count) in enumerate(PARTS):
        segments.append([len(positions), count, phase, committed, row])
        origin = -(-committed // page) * page if phase == Phase.DENOISE else committed
        for index in range(count):
            place = origin + index
            positions.append(committed + index)
            phases.append(phase)
            slots.append(table[row, place // page] * page + place % page)
    rows = len(positions) + PADDING
    soft = random.standard_normal((4, geometry.hidden_size)).astype(np.float32)
    soft[0] = 0
    padding = [0] * PADDING
    made = {
        "token_ids": random.integers(0, geometry.vocab_size, rows),
        "positions": np.array(positions + padding),
        "phases": np.array(phases + padding, np.int32),
        "slots_sliding": np.array(slots + [NO_SLOT] * PADDING, np.int64),
        "segments": np.array([*segments, [0] * 5], np.int32),
        "table_sliding": table,
        "soft_index": random.integers(0, 4, rows),
        "soft": soft,
        "output_rows": np.array(OUTPUTS),
    }
    made |= {"slots_full": made["slots_sliding"], "table_full": table}
    for layer in range(geometry.num_layers):
        shape = (table.max() + 2, 2, page, geometry.kv_heads(layer), geometry.head_dim(layer))
        made[bindings.pool_name(layer)] = random.standard_normal(shape).astype(np.float32)
    return made
