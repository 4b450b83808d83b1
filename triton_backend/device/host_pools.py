"""Pages of preempted requests in host memory, pinned where a GPU copies from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.core import Transfer


class HostPools:
    """A pool [slots, 2, page, kv_heads, head_dim] for each of the device's, layer by layer.

    Raises:
        EngineError: the memory is not to be had.
    """

    def __init__(
        self, contract: EngineContract, pools: Sequence[Tensor], slots: Mapping[bool, int]
    ) -> None:
        self._pools = pools
        self._slides = [contract.geometry.is_sliding(n) for n in range(len(pools))]
        pinned = pools[0].is_cuda
        try:
            self._host = [
                torch.empty(slots[slides], *pool.shape[1:], dtype=pool.dtype, pin_memory=pinned)
                for pool, slides in zip(pools, self._slides, strict=True)
            ]
        except RuntimeError as error:
            size = contract.pool_bytes(slots[False], slots[True]) >> 20
            raise EngineError(
                f"host_kv_bytes of {size} MiB are more than this machine gives; lower it."
            ) from error

    def move(self, saves: Sequence[Transfer], loads: Sequence[Transfer]) -> None:
        """Copies pages out, then back in, on the current stream; waits for what went out."""
        for moves, back in ((saves, False), (loads, True)):
            for sliding in (False, True):
                chosen = [move for move in moves if move.sliding is sliding]
                if chosen:
                    self._copy(sliding, chosen, back)

    def _copy(self, sliding: bool, moves: Sequence[Transfer], back: bool) -> None:
        slots = torch.tensor([move.slot for move in moves])
        pages = torch.tensor([move.page for move in moves], device=self._pools[0].device)
        for pool, host, slides in zip(self._pools, self._host, self._slides, strict=True):
            if slides is sliding and back:
                pool[pages] = host[slots].to(pool.device)
            elif slides is sliding:
                host[slots] = pool[pages].cpu()
