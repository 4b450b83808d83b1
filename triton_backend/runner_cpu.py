"""Runs packed steps on the CPU engine: three AOTInductor packages over one mapped weight file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from plugins import loader
from triton_backend.pack import LEAST
from triton_backend.runner import DenoiseOutput, HeadOutput, StepOutput

if TYPE_CHECKING:
    from triton_backend.pack import PackedStep

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class CpuRunner:
    """Owns the weights, the KV pools and the compiled functions of one CPU engine.

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
        self._denoise = self._load(directory / "denoise.pt2")

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
                    max(pages, 2),
                    2,
                    page,
                    geometry.kv_heads(n),
                    geometry.head_dim(n),
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
        zeros = torch.zeros(LEAST, self.contract.geometry.hidden_size, dtype=self._dtype)
        inputs.append(torch.cat([zeros, *packed.soft_parts]))
        inputs.append(torch.from_numpy(packed.output_rows))
        hidden: torch.Tensor = self._step.run([*inputs, *self._pools])[0]
        return hidden

    def read(self, hidden: torch.Tensor, packed: PackedStep) -> HeadOutput:
        """The read head over hidden rows [R, H] and their labels."""
        outputs = self._head.run([hidden, torch.from_numpy(packed.label_ids)])
        return HeadOutput(*(tensor.numpy() for tensor in outputs))

    def denoise(self, hidden: torch.Tensor, packed: PackedStep) -> DenoiseOutput:
        """The denoise head over hidden rows [D, H] at their temperatures."""
        arrays = (packed.temperature, packed.draws)
        outputs = self._denoise.run([hidden, *(torch.from_numpy(array) for array in arrays)])
        argmax, candidate, entropy, log_prob, candidate_log_prob, soft = outputs
        return DenoiseOutput(
            argmax.numpy(),
            candidate.numpy(),
            entropy.numpy(),
            log_prob.numpy(),
            candidate_log_prob.numpy(),
            soft,
        )

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution: all layers over the packed rows, then the heads that have rows."""
        return self.heads(self.hidden(packed), packed)

    def heads(self, hidden: torch.Tensor, packed: PackedStep) -> StepOutput:
        """Both heads over the step's hidden rows, read rows first."""
        reads, denoised = len(packed.label_ids), len(packed.temperature)
        return StepOutput(
            self.read(hidden[:reads], packed) if reads else None,
            self.denoise(hidden[reads:], packed) if denoised else None,
        )

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
