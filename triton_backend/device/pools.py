"""The KV pools on a device: made at once, written by the engine or, where it returns rows, here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from build_engine import bindings
from build_engine.bindings import Signature
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.device.executor import Tensors
from triton_backend.device.padding import Arrays
from triton_backend.device.staging import DTYPES
from triton_backend.pack import LEAST, PackedStep

_GROUPS = ("sliding", "full")


class Pools:
    """Zeroed pools [pages, 2, page, kv_heads, head_dim], one a layer; each group has its pages.

    Raises:
        EngineError: the device has no such memory, or the engine takes fewer pages.
    """

    def __init__(
        self,
        contract: EngineContract,
        step: Signature,
        pages: Mapping[str, int],
        device: torch.device,
    ) -> None:
        self._contract = contract
        self._stores = any(b.name == bindings.new_rows_name(0) for b in step.outputs)
        self.tensors: Tensors = {}
        held = {name: max(count, LEAST) for name, count in pages.items()}
        _check_pages(contract, held)
        try:
            for binding in step.inputs:
                if bindings.is_pool(binding.name):
                    shape = [held[n] if isinstance(n, str) else n for n in binding.shape]
                    dtype = DTYPES[binding.dtype]
                    self.tensors[binding.name] = torch.zeros(shape, dtype=dtype, device=device)
        except RuntimeError as error:  # of which torch.OutOfMemoryError is one
            self.tensors.clear()
            raise EngineError(_no_room(contract, pages, device)) from error

    def places(self, packed: PackedStep) -> Arrays:
        """Which rows go where, for `store`; nothing where the engine writes its pools itself."""
        if not self._stores:
            return {}
        made: dict[str, Any] = {}
        for group in _GROUPS:
            slots = getattr(packed, f"slots_{group}")
            made[f"kept_{group}"] = np.flatnonzero(slots >= 0)
            kept = slots[made[f"kept_{group}"]]
            made[f"page_{group}"], made[f"offset_{group}"] = divmod(kept, self._contract.page_size)
        return made

    def store(self, outputs: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
        """Writes the rows that a step returned, if it did, at their places."""
        if not self._stores:
            return
        geometry = self._contract.geometry
        for n, pool in enumerate(self.tensors.values()):
            group = _GROUPS[0] if geometry.is_sliding(n) else _GROUPS[1]
            rows = outputs[bindings.new_rows_name(n)][places[f"kept_{group}"]]
            pool[places[f"page_{group}"], :, places[f"offset_{group}"]] = rows


def _check_pages(contract: EngineContract, pages: Mapping[str, int]) -> None:
    most = bindings.target_sizes(
        contract.target, contract.geometry, contract.limits, contract.page_size
    )
    for name, count in pages.items():
        if count > most[name]:
            raise EngineError(
                f"the KV pools have {count} {name.replace('_', ' ')}, a {contract.target} engine "
                f"of this geometry takes at most {most[name]}; lower kv_cache_pages or "
                "kv_cache_bytes."
            )


def _no_room(contract: EngineContract, pages: Mapping[str, int], device: torch.device) -> str:
    full, sliding = pages[bindings.FULL_PAGES], pages[bindings.SLIDING_PAGES]
    size = contract.pool_bytes(full, sliding) >> 20
    needed = f"the KV pools of {full} and {sliding} pages need {size} MiB"
    if device.type != "cuda":
        return f"{needed}, more than this machine gives."
    free, _ = torch.cuda.mem_get_info(device)
    return (
        f"{needed}, {free >> 20} MiB of GPU memory are free beside the engine; lower "
        "kv_cache_pages or kv_cache_bytes."
    )
