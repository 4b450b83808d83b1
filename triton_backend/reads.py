"""Turns raw head outputs into what a client reads; pure NumPy, knows no requests and no engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triton_backend.core import ErrorKind, RequestError
from triton_backend.runner import HeadOutput

PADDING_LOG_PROB = np.float32(-1e30)
"""Log-probability at a padding label, finite since JSON has no infinity; its probability is 0."""


@dataclass(frozen=True)
class ReadResult:
    """What a canvas says at its S slots about their K labels; every number is finite."""

    log_probs: NDArray[np.float32]  # [S, K], over the whole vocabulary
    probs: NDArray[np.float32]  # [S, K], over the slot's labels, sums to 1
    label_mass: NDArray[np.float32]  # [S], raw probability of all its labels
    entropy: NDArray[np.float32]  # [S], nats over the whole vocabulary
    argmax: NDArray[np.int32]  # [S], over the whole vocabulary


def take_rows(head: HeadOutput, rows: slice, columns: int) -> HeadOutput:
    """The outputs of some rows and their first label columns."""
    return HeadOutput(
        head.label_logits[rows, :columns], head.lse[rows], head.entropy[rows], head.argmax[rows]
    )


def read_slots(head: HeadOutput, label_counts: NDArray[np.int64]) -> ReadResult:
    """The read of one canvas: row i of `head` is slot i, its first `label_counts[i]` labels count.

    Raises:
        RequestError: the engine's numbers are not finite.
    """
    real = np.arange(head.label_logits.shape[1]) < label_counts[:, None]
    logits = np.where(real, head.label_logits, np.float32(0)).astype(np.float64)
    if not all(np.isfinite(values).all() for values in (logits, head.lse, head.entropy)):
        limit = "the engine found no usable numbers for this request"
        raise RequestError("slot_log_probs", "are not finite", limit, ErrorKind.INTERNAL)
    log_probs = np.minimum(logits - head.lse.astype(np.float64)[:, None], 0.0)
    raw = np.where(real, np.exp(log_probs), 0.0)
    shifted = np.where(real, logits - np.where(real, logits, -np.inf).max(1, keepdims=True), 0.0)
    weights = np.where(real, np.exp(shifted), 0.0)
    return ReadResult(
        log_probs=np.where(real, log_probs, PADDING_LOG_PROB).astype(np.float32),
        probs=(weights / weights.sum(1, keepdims=True)).astype(np.float32),
        label_mass=np.minimum(raw.sum(1), 1.0).astype(np.float32),
        entropy=np.maximum(head.entropy, np.float32(0)).astype(np.float32),
        argmax=head.argmax.astype(np.int32),
    )
