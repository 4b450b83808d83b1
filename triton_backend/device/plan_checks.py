"""Whether a plan is what the contract says; pure, asks no library."""

from __future__ import annotations

from collections.abc import Mapping

from build_engine import bindings
from build_engine.bindings import Signature
from build_engine.errors import EngineError
from triton_backend.device.shapes import Profile, lacking


def check_tensors(name: str, found: Mapping[str, tuple[bool, str]], signature: Signature) -> None:
    """Refuses a plan with other inputs and outputs than the contract's.

    Raises:
        EngineError: naming the first that differs.
    """
    wanted = {b.name: (True, b.dtype) for b in signature.inputs}
    wanted |= {b.name: (False, b.dtype) for b in signature.outputs}
    if found == wanted:
        return
    differing = [key for key in (*wanted, *found) if found.get(key) != wanted.get(key)]
    raise EngineError(
        f"{name} has other inputs or outputs than config.json says ({differing[0]} is the first); "
        "rebuild the engine."
    )


def check_profiles(
    name: str, signature: Signature, sizes: Mapping[str, int], profiles: list[Profile]
) -> None:
    """Refuses a plan that does not take the contract's limits.

    Raises:
        EngineError: naming the first input that is too large.
    """
    absent = lacking(signature, sizes, profiles)
    if absent is not None:
        raise EngineError(
            f"{name} takes no input {absent}, which config.json's limits allow; rebuild the engine."
        )


def check_alias(name: str, output: str, aliased: str | None) -> None:
    """Refuses a plan that is known to update another input than a pool's; None: it is not known.

    Raises:
        EngineError: naming the pool.
    """
    pool = bindings.pool_of(output)
    if pool is not None and aliased not in (None, pool):
        raise EngineError(
            f"{name} writes {output} into {aliased}, not into {pool}; rebuild the engine."
        )
