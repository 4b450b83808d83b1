"""Runs packed steps on the CPU engine: three AOTInductor packages over one mapped weight file.

NumPy arrays throughout, bfloat16 as uint16 with the same bits; torch is not imported, which alone
would take 90 MiB.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from plugins import libtorch, package
from plugins.errors import PluginError
from triton_backend.mapped import Values, map_weights, zeroed
from triton_backend.memory import Growth
from triton_backend.pack import LEAST
from triton_backend.runner import DenoiseOutput, HeadOutput, StepOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from triton_backend.core import Transfer
    from triton_backend.pack import PackedStep

_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(np.uint16),
}
# In bytes. Less, and page faults take a measurable part of the executions of many rows.
_MOST_GROWTH = 64 << 20


class CpuRunner:
    """Owns the weights, the KV pools and the compiled functions of one CPU engine.

    Raises:
        EngineError: the engine was compiled by another torch release, or does not load.
    """

    def __init__(self, directory: str | Path, contract: EngineContract, threads: int = 0) -> None:
        self.contract = contract
        self._dtype = _DTYPES[contract.dtype]
        self._pools: list[Values] = []
        self._host_pools: list[Values] = []
        self._growth = Growth(_MOST_GROWTH)
        _check_builder(contract)
        if threads:
            package.set_num_threads(threads)
        directory = Path(directory)
        self._weights = map_weights(directory / "weights.safetensors")
        self._step = self._load(directory / "step.pt2")
        self._head = self._load(directory / "head.pt2")
        self._denoise = self._load(directory / "denoise.pt2")

    def _load(self, path: Path) -> package.Package:
        try:
            loaded = package.Package(path)
        except PluginError as error:
            raise EngineError(
                f"{path} does not load here ({str(error).splitlines()[0]}); rebuild the engine on "
                "this machine."
            ) from error
        loaded.set_constants(self._weights)
        return loaded

    def create_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocate zeroed KV pools [pages, 2, page, kv_heads, head_dim], one a layer.

        Raises:
            EngineError: the memory is not to be had.
        """
        self._pools = self._allocate(max(full_pages, 2), max(sliding_pages, 2))

    def create_host_pools(self, full_pages: int, sliding_pages: int) -> None:
        """A second set of pools: on this target host memory is what the first are made of too.

        Raises:
            EngineError: the memory is not to be had.
        """
        self._host_pools = self._allocate(full_pages, sliding_pages)

    def move(self, saves: Sequence[Transfer], loads: Sequence[Transfer]) -> None:
        """Copies pages to the second pools, then pages back."""
        for moves, back in ((saves, False), (loads, True)):
            for sliding in (False, True):
                chosen = [move for move in moves if move.sliding is sliding]
                if chosen:
                    pages, slots = ([m.page for m in chosen], [m.slot for m in chosen])
                    self._copy(sliding, pages, slots, back)

    def _copy(self, sliding: bool, pages: list[int], slots: list[int], back: bool) -> None:
        for n, (pool, host) in enumerate(zip(self._pools, self._host_pools, strict=True)):
            if self.contract.geometry.is_sliding(n) is sliding:
                if back:
                    pool[pages] = host[slots]
                else:
                    host[slots] = pool[pages]

    def _allocate(self, full_pages: int, sliding_pages: int) -> list[Values]:
        geometry, page = self.contract.geometry, self.contract.page_size
        counts = {True: sliding_pages, False: full_pages}
        shapes = [
            (counts[geometry.is_sliding(n)], 2, page, geometry.kv_heads(n), geometry.head_dim(n))
            for n in range(geometry.num_layers)
        ]
        try:
            pools = [zeroed(shape, self._dtype) for shape in shapes]
        except MemoryError as error:
            size = self.contract.pool_bytes(full_pages, sliding_pages) >> 20
            raise EngineError(
                f"the KV pools of {full_pages} and {sliding_pages} pages need {size} MiB, more "
                "than this machine gives."
            ) from error
        self._growth = Growth(_MOST_GROWTH)
        return pools

    @property
    def pools(self) -> list[Values]:
        """The KV pools, one a layer."""
        return self._pools

    def hidden(self, packed: PackedStep) -> Values:
        """Normed hidden states [R, H] of the step's output rows; writes the KV pools."""
        no_signal = np.zeros((LEAST, self.contract.geometry.hidden_size), self._dtype)
        inputs = (
            packed.token_ids,
            packed.positions,
            packed.phases,
            packed.slots_sliding,
            packed.slots_full,
            packed.segments,
            packed.table_sliding,
            packed.table_full,
            packed.soft_index,
            np.concatenate([no_signal, *packed.soft_parts]),
            packed.output_rows,
        )
        hidden = self._step.run([*inputs, *self._pools])[0]
        self._growth.bound()
        return hidden

    def read(self, hidden: Values, packed: PackedStep) -> HeadOutput:
        """The read head over hidden rows [R, H] and their labels."""
        return HeadOutput(*self._head.run([hidden, packed.label_ids]))

    def denoise(self, hidden: Values, packed: PackedStep) -> DenoiseOutput:
        """The denoise head over hidden rows [D, H] at their temperatures."""
        return DenoiseOutput(*self._denoise.run([hidden, packed.temperature, packed.draws]))

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution: all layers over the packed rows, then the heads that have rows."""
        return self.heads(self.hidden(packed), packed)

    def heads(self, hidden: Values, packed: PackedStep) -> StepOutput:
        """Both heads over the step's hidden rows, read rows first."""
        reads, denoised = len(packed.label_ids), len(packed.temperature)
        return StepOutput(
            self.read(hidden[:reads], packed) if reads else None,
            self.denoise(hidden[reads:], packed) if denoised else None,
        )

    @property
    def embedding(self) -> Values:
        """The token table [V, H], tied with the head."""
        return self._weights["embed_tokens.weight"]


def _check_builder(contract: EngineContract) -> None:
    built, running = contract.builder.get("torch"), libtorch.version()
    if built != running:
        raise EngineError(
            f"the engine was built with torch {built}, this server runs torch {running}; rebuild "
            "it with `python -m build_engine`."
        )
    built_for, here = contract.builder.get("cpu_capability"), package.cpu_capability()
    if built_for != here:
        raise EngineError(
            f"the engine was built for {built_for} CPUs, this one offers {here}; rebuild it here."
        )
