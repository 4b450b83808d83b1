"""Runs packed steps on the CPU engine: two AOTInductor packages over one mapped weight file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from plugins import loader
from triton_backend.runner import HeadOutput

if TYPE_CHECKING:
    from triton_backend.pack import PackedStep

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class CpuRunner:
    """Owns the weights, the KV pools and the two compiled functions of one CPU engine.

    Raises:
        EngineError: the engine was compiled by another torch release, or does not load.
    """

    def __init__(self, directory: str | Path, contract: EngineContract, threads: int = 0) -> None:
        self.contract = contract
        self._dtype = _DTYPES[contract.dtype]
        self._pools: list[torch.Tensor] = []
        if threads:
            torch.set_num_threads(threads)
        _check_builder(contract)
        loader.load()
        directory = Path(directory)
        self._weights = load_file(str(directory / "weights.safetensors"))
        self._step = self._load(directory / "step.pt2")
        self._head = self._load(directory / "head.pt2")

    def _load(self, path: Path) -> Any:
        try:
            package = torch.classes.dg.Package(str(path))
        except RuntimeError as error:
            raise EngineError(
                f"{path} does not load here ({str(error).splitlines()[0]}); rebuild the engine on "
                "this machine."
            ) from error
        package.load_constants({name: self._weights[name] for name in package.constants()})
        return package

    def create_pools(self, pages: int) -> None:
        """Allocate zeroed KV pools [pages, 2, page, kv_heads, head_dim], one a layer.

        Raises:
            EngineError: the memory is not to be had.
        """
        geometry, page = self.contract.geometry, self.contract.page_size
        try:
            self._pools = [
                torch.zeros(
                    max(pages, 2), 2, page, geometry.kv_heads(n), geometry.head_dim(n),
                    dtype=self._dtype,
                )
                for n in range(geometry.num_layers)
            ]
        except RuntimeError as error:
            size = self.contract.pool_bytes(pages) >> 20
            raise EngineError(
                f"the KV pool of {pages} pages needs {size} MiB, more than this machine gives."
            ) from error

    @property
    def pools(self) -> list[torch.Tensor]:
        """The KV pools, one a layer."""
        return self._pools

    def hidden(self, packed: PackedStep) -> torch.Tensor:
        """Normed hidden states [R, H] of the step's output rows; writes the KV pools."""
        arrays = (
            packed.token_ids,
            packed.positions,
            packed.phases,
            packed.slots_sliding,
            packed.slots_full,
            packed.segments,
            packed.table_sliding,
            packed.table_full,
            packed.soft_index,
        )
        inputs = [torch.from_numpy(array) for array in arrays]
        inputs.append(torch.from_numpy(packed.soft).to(self._dtype))
        inputs.append(torch.from_numpy(packed.output_rows))
        hidden: torch.Tensor = self._step.run([*inputs, *self._pools])[0]
        return hidden

    def read(self, hidden: torch.Tensor, packed: PackedStep) -> HeadOutput:
        """The read head over hidden rows [R, H] and their labels."""
        outputs = self._head.run([hidden, torch.from_numpy(packed.label_ids)])
        return HeadOutput(*(tensor.numpy() for tensor in outputs))

    def run(self, packed: PackedStep) -> HeadOutput:
        """One execution: all layers over the packed rows, then the read head if anybody reads."""
        hidden = self.hidden(packed)
        if not packed.num_outputs:
            rows = np.zeros(len(packed.output_rows), np.float32)
            labels = np.zeros(packed.label_ids.shape, np.float32)
            return HeadOutput(labels, rows, rows, rows.astype(np.int32))
        return self.read(hidden, packed)

    @property
    def embedding(self) -> torch.Tensor:
        """The token table [V, H], tied with the head."""
        return self._weights["embed_tokens.weight"]


def _check_builder(contract: EngineContract) -> None:
    built, running = contract.builder.get("torch"), torch.__version__
    if built != running:
        raise EngineError(
            f"the engine was built with torch {built}, this server runs torch {running}; rebuild "
            "it with `python -m build_engine`."
        )
    built_for = contract.builder.get("cpu_capability")
    here = torch.backends.cpu.get_cpu_capability()
    if built_for != here:
        raise EngineError(
            f"the engine was built for {built_for} CPUs, this one offers {here}; rebuild it here."
        )
