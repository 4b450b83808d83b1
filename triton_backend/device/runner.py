"""Runs packed steps on any executor: pads, stages, calls the functions, brings results back.

Knows no target. What differs between targets follows from the contract's signatures and sizes:
pools written in place or rows to be stored, `lanes`, heads in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from build_engine import bindings
from build_engine.contract import EngineContract
from triton_backend.core import Transfer
from triton_backend.device import padding
from triton_backend.device.executor import Executor
from triton_backend.device.gpu import new_stream, running_on, settle
from triton_backend.device.host_pools import HostPools
from triton_backend.device.padding import Arrays, Calls
from triton_backend.device.pools import Pools
from triton_backend.device.staging import DTYPES, Gathering, Staging
from triton_backend.pack import LEAST, PackedStep
from triton_backend.runner import DenoiseOutput, HeadOutput, StepOutput

_KEPT = frozenset({"soft"})


class DeviceRunner:
    """Owns the KV pools and the staging buffers of one engine; the executor owns the weights."""

    def __init__(self, contract: EngineContract, executor: Executor) -> None:
        self.contract = contract
        self._executor = executor
        self._device = executor.device
        self._most = bindings.target_sizes(
            contract.target, contract.geometry, contract.limits, contract.page_size
        )
        self._whole = bindings.dynamic_sizes(contract.limits, contract.page_size)
        self._step = bindings.signatures(contract)[bindings.STEP]
        self._staging = {name: Staging(self._device) for name in bindings.FUNCTIONS}
        self._stream = new_stream(self._device)
        self._pools: Pools | None = None
        self._host: HostPools | None = None
        with running_on(self._stream):
            self._zeros = torch.zeros(
                (self._most["soft"], contract.geometry.hidden_size),
                dtype=DTYPES[contract.dtype],
                device=self._device,
            )

    @property
    def pools(self) -> list[Tensor]:
        """The KV pools, one a layer."""
        return list(self._created().tensors.values())

    @property
    def embedding(self) -> Tensor | None:
        """The token table [V, H], tied with the head, where the executor has it at hand."""
        return self._executor.embedding

    def create_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocate the KV pools.

        Raises:
            EngineError: the device has no such memory, or the engine takes fewer pages.
        """
        pages = {bindings.FULL_PAGES: full_pages, bindings.SLIDING_PAGES: sliding_pages}
        self._pools = None
        with running_on(self._stream):
            self._pools = Pools(self.contract, self._step, pages, self._device)

    def create_host_pools(self, full_pages: int, sliding_pages: int) -> None:
        """Allocate as many pages of each group in host memory; `create_pools` comes first.

        Raises:
            EngineError: the memory is not to be had.
        """
        slots = {False: full_pages, True: sliding_pages}
        self._host = HostPools(self.contract, self.pools, slots)

    @torch.inference_mode()
    def move(self, saves: Sequence[Transfer], loads: Sequence[Transfer]) -> None:
        """Copies pages to host memory, then pages back from it."""
        assert self._host is not None, "create_host_pools comes first"
        with running_on(self._stream):
            self._host.move(saves, loads)

    def _created(self) -> Pools:
        assert self._pools is not None, "create_pools comes first"
        return self._pools

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution: all layers over the packed rows, then the heads that have rows."""
        return self.heads(self.hidden(packed), packed)

    @torch.inference_mode()
    def hidden(self, packed: PackedStep) -> Tensor:
        """Normed hidden states of the step's output rows, padded; writes the KV pools."""
        pools = self._created()
        with running_on(self._stream):
            arrays = padding.step_arrays(packed, self._plan(packed), self._most)
            staged = self._staging[bindings.STEP].put({**arrays, **pools.places(packed)})
            given = {**staged, **pools.tensors, "soft": self._soft(packed)}
            inputs = {binding.name: given[binding.name] for binding in self._step.inputs}
            outputs = self._executor.run(bindings.STEP, inputs)
            pools.store(outputs, staged)
            return outputs["hidden"]

    @torch.inference_mode()
    def heads(self, hidden: Tensor, packed: PackedStep) -> StepOutput:
        """Both heads over the step's padded hidden rows, read rows first; waits for the device."""
        plan = self._plan(packed)
        reads, denoised = sum(plan.reads), sum(plan.denoised)
        read = drawn = None
        with running_on(self._stream):
            if reads:
                arrays = padding.head_arrays(packed, plan, self._most)
                rows, count = hidden[:reads], len(packed.label_ids)
                read = self._head(bindings.HEAD, rows, arrays, plan.reads, count)
            if denoised:
                arrays = padding.denoise_arrays(packed, plan)
                rows, count = hidden[reads : reads + denoised], len(packed.temperature)
                drawn = self._head(bindings.DENOISE, rows, arrays, plan.denoised, count)
            settle(self._device)
        return StepOutput(
            None if read is None else _labels(read.arrays(), packed.label_ids.shape[1]),
            None if drawn is None else DenoiseOutput(**drawn.arrays()),
        )

    def _plan(self, packed: PackedStep) -> Calls:
        return padding.plan_calls(packed, self._most, self._whole)

    def _head(
        self, name: str, hidden: Tensor, arrays: Arrays, sizes: tuple[int, ...], count: int
    ) -> Gathering:
        """One head over all its rows, in as many calls as it takes."""
        staged = {"hidden": hidden, **self._staging[name].put(arrays)}
        gathering, first = Gathering(count, self._device, _KEPT), 0
        for size in sizes:
            inputs = {key: values[first : first + size] for key, values in staged.items()}
            gathering.add(self._executor.run(name, inputs))
            first += size
        return gathering

    def _soft(self, packed: PackedStep) -> Tensor:
        """The padded table of soft vectors, whose first rows are no signal."""
        rows = padding.soft_rows(packed, self._most)
        taken = LEAST + sum(len(part) for part in packed.soft_parts)
        parts = [self._zeros[:LEAST], *packed.soft_parts, self._zeros[: rows - taken]]
        return torch.cat(parts)


def _labels(found: dict[str, Any], columns: int) -> HeadOutput:
    """The read head's results without the padding of its labels."""
    return replace(HeadOutput(**found), label_logits=found["label_logits"][:, :columns])
