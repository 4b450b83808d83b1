"""What the serving loop asks of an engine: one call per execution, NumPy in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from build_engine.contract import EngineContract

if TYPE_CHECKING:
    from triton_backend.pack import PackedStep


@dataclass(frozen=True)
class HeadOutput:
    """Raw results per output row, padding rows included."""

    label_logits: NDArray[np.float32]  # [R, K], -inf at padding labels
    lse: NDArray[np.float32]  # [R], log-sum-exp over the vocabulary
    entropy: NDArray[np.float32]  # [R], nats over the vocabulary
    argmax: NDArray[np.int32]  # [R]


class Runner(Protocol):
    """An engine that is loaded and holds its KV pools."""

    contract: EngineContract

    def create_pools(self, pages: int) -> None:
        """Allocates the KV pools, once, before the first `run`."""

    def run(self, packed: PackedStep) -> HeadOutput:
        """One execution; writes the KV pools."""
        ...
