"""What the serving loop asks of an engine: one call per execution, NumPy in and out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from build_engine.contract import EngineContract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from triton_backend.core import Transfer
    from triton_backend.pack import PackedStep


@dataclass(frozen=True)
class HeadOutput:
    """Raw results per output row, padding rows included."""

    label_logits: NDArray[np.float32]  # [R, K], -inf at padding labels
    lse: NDArray[np.float32]  # [R], log-sum-exp over the vocabulary
    entropy: NDArray[np.float32]  # [R], nats over the vocabulary
    argmax: NDArray[np.int32]  # [R]


@dataclass(frozen=True)
class DenoiseOutput:
    """What a denoising step says of each of its R rows, padding rows included.

    Entropy and the candidate's probability are those of the temperature-scaled distribution;
    `log_prob` is the argmax's at temperature 1. `soft` [R, H] is the runner's own kind of array:
    it is only ever sliced and handed back.
    """

    argmax: NDArray[np.int32]  # [R]
    candidate: NDArray[np.int32]  # [R]
    entropy: NDArray[np.float32]  # [R], nats
    log_prob: NDArray[np.float32]  # [R]
    candidate_log_prob: NDArray[np.float32]  # [R]
    soft: Any

    def rows(self, first: int, count: int) -> DenoiseOutput:
        """The output of `count` rows from `first` on."""
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return DenoiseOutput(*(values[first : first + count] for values in fields))


@dataclass(frozen=True)
class StepOutput:
    """Both heads' results; None where no row goes through that head."""

    read: HeadOutput | None = None
    denoise: DenoiseOutput | None = None


@dataclass(frozen=True)
class RunnerOptions:
    """How this server wants an engine run: `threads` 0 keeps the library's own number.

    `kernel_cache` is a directory for kernels that a library compiles where it runs, None for none;
    `cuda_graphs` lets calls that recur be captured and replayed.
    """

    threads: int = 0
    kernel_cache: Path | None = None
    cuda_graphs: bool = True


class Runner(Protocol):
    """An engine that is loaded and holds its KV pools."""

    contract: EngineContract

    def create_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocates the KV pools of both groups of layers, once, before the first `run`."""

    def create_host_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocates as many pages of each group in host memory, for `move`."""

    def move(self, saves: Sequence[Transfer], loads: Sequence[Transfer]) -> None:
        """Copies pages to host memory, then pages back from it."""

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution; writes the KV pools."""
        ...
