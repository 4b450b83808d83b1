"""How many KV pages this server holds, and what a sequence takes of them."""

from __future__ import annotations

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.config import ServeConfig
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import KvShape
from triton_backend.page_pool import pages_for


def choose_shape(config: ServeConfig, contract: EngineContract, limits: StepLimits) -> KvShape:
    """Pages of both groups: as configured, else for one longest request and one full execution.

    The sliding group gets as many as go with the full group's when all requests are of the longest
    kind, unless it is told.

    Raises:
        EngineError: too few for a single canvas.
    """
    size, longest = contract.page_size, contract.limits.max_context + contract.limits.max_canvas
    full = config.kv_cache_pages
    if config.kv_cache_bytes:
        full = _pages_within(config.kv_cache_bytes, contract, limits)
    elif not full:
        full = pages_for(longest, size) + pages_for(limits.max_tokens, size)
    sliding = config.kv_sliding_pages or sliding_pages(full, contract, limits)
    shape = KvShape(size, contract.window, full, sliding)
    least = pages_for(min(contract.limits.max_canvas, limits.max_tokens), size) + 1
    if min(full, sliding) < least:
        have, need = contract.pool_bytes(full, sliding), contract.pool_bytes(least, least)
        raise EngineError(
            f"the KV cache has {full} pages of full and {sliding} of sliding layers ({have} bytes),"
            f" a read may need {least} of each ({need} bytes); raise kv_cache_pages, "
            "kv_sliding_pages or kv_cache_bytes."
        )
    return shape


def sliding_pages(full: int, contract: EngineContract, limits: StepLimits) -> int:
    """Pages of the sliding group that go with so many of the full group."""
    size, window = contract.page_size, contract.window
    longest = contract.limits.max_context + contract.limits.max_canvas
    behind = pages_for(max(window - 1, 0), size) + 2
    canvas, step = (pages_for(n, size) for n in (contract.limits.max_canvas, limits.max_tokens))
    requests = full / pages_for(longest, size)
    return min(full, round(requests * (behind + canvas)) + step)


def host_slots(config: ServeConfig, contract: EngineContract, shape: KvShape) -> tuple[int, int]:
    """Slots of host memory for pages of the full and of the sliding group, in the pools' ratio."""
    pools = contract.pool_bytes(shape.full_pages, shape.sliding_pages)
    share = config.host_kv_bytes / max(pools, 1)
    return int(shape.full_pages * share), int(shape.sliding_pages * share)


def sequence_bytes(contract: EngineContract, tokens: int) -> tuple[int, int]:
    """Bytes that a context of so many tokens takes, and that it would with one group of pages."""
    size = contract.page_size
    full, whole = pages_for(tokens, size), pages_for(max(contract.window - 1, 0), size) + 1
    return contract.pool_bytes(full, min(full, whole)), contract.pool_bytes(full, full)


def check_memory(contract: EngineContract, shape: KvShape, available: int | None) -> None:
    """Refuses pools that this machine cannot hold: allocation itself would succeed, use would not.

    Raises:
        EngineError: with both sizes.
    """
    needed = contract.pool_bytes(shape.full_pages, shape.sliding_pages)
    if available is not None and needed > available:
        raise EngineError(
            f"the KV cache of {shape.full_pages} and {shape.sliding_pages} pages needs "
            f"{needed >> 20} MiB, {available >> 20} MiB are available; lower kv_cache_pages or "
            "kv_cache_bytes."
        )


def _pages_within(budget: int, contract: EngineContract, limits: StepLimits) -> int:
    """The most pages of the full group that, with theirs of the sliding group, fit in bytes."""
    low, high = 0, budget // max(contract.group_page_bytes(False), 1) + 1
    if not contract.group_page_bytes(False):
        high = budget // contract.kv_page_bytes + 1
    while high - low > 1:
        middle = (low + high) // 2
        used = contract.pool_bytes(middle, sliding_pages(middle, contract, limits))
        low, high = (middle, high) if used <= budget else (low, middle)
    return low
