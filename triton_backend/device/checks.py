"""Why an engine cannot be served here, each in one sentence; knows no library."""

from __future__ import annotations

from build_engine.contract import EngineContract
from build_engine.errors import EngineError


def check_version(contract: EngineContract, key: str, package: str, installed: str) -> None:
    """Refuses an engine that another release of a package built, as the builder recorded it.

    Raises:
        EngineError: naming both releases.
    """
    built = contract.builder.get(key)
    if built != installed:
        raise EngineError(
            f"the engine was built with {package} {built}, this server runs {package} {installed}; "
            f"rebuild it with `--target {contract.target}` or install {package} {built}."
        )


def check_capability(contract: EngineContract, found: str, gpu: str) -> None:
    """Refuses an engine that was built for other GPUs than the one here.

    Raises:
        EngineError: naming the compute capabilities.
    """
    built = contract.builder.get("compute_capabilities") or [
        contract.builder.get("compute_capability", found)
    ]
    if found not in built:
        wanted = " or ".join(map(str, built))
        raise EngineError(
            f"the engine was built for GPUs of compute capability {wanted}, this one ({gpu}) has "
            f"{found}; rebuild it for this one with `--target {contract.target}`."
        )


def first_line(error: BaseException) -> str:
    """What an exception says first, or its kind when it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
