"""Which runner serves which engine target; the only place that names them."""

from __future__ import annotations

import importlib
from pathlib import Path

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.runner import Runner

# By name, so that a server imports the libraries of its own target and of no other.
RUNNERS = {"cpu": ("triton_backend.runner_cpu", "CpuRunner")}


def open_runner(directory: Path, contract: EngineContract, threads: int) -> Runner:
    """The runner of the engine's target, its weights loaded.

    Raises:
        EngineError: no runner for this target, or the engine does not load.
    """
    if contract.target not in RUNNERS:
        known = ", ".join(sorted(RUNNERS))
        raise EngineError(
            f"engine {directory} is built for target {contract.target!r}, this server runs "
            f"{known}; build it with `--target` one of those."
        )
    module, name = RUNNERS[contract.target]
    runner: Runner = getattr(importlib.import_module(module), name)(directory, contract, threads)
    return runner
