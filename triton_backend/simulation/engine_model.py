"""A model to simulate, made of an engine directory and the profile that was measured of it."""

from __future__ import annotations

from pathlib import Path

from build_engine.contract import load_contract
from build_engine.errors import EngineError
from triton_backend.config import ServeConfig
from triton_backend.kv_sizes import choose_shape
from triton_backend.limits import step_limits
from triton_backend.profile_file import load_profile
from triton_backend.simulation.setting import Model


def engine_model(directory: Path, kv_pages: int, mean_steps: float, most_steps: int) -> Model:
    """The engine as a worker of the simulation; `kv_pages` 0 takes what a server would.

    Raises:
        EngineError: no engine, or none that was measured here.
    """
    contract = load_contract(directory, verify=False)
    profile = load_profile(directory)
    if profile is None:
        raise EngineError(f"engine {directory} has no profile.json; run `make profile` first.")
    limits = step_limits(contract, 0)
    config = ServeConfig(str(directory), kv_cache_pages=kv_pages)
    full, sliding = (contract.group_page_bytes(group) for group in (False, True))
    return Model(
        name=directory.name,
        cost=profile.cost,
        canvas=min(contract.geometry.canvas_length, contract.limits.max_canvas),
        limits=limits,
        kv=choose_shape(config, contract, limits),
        full_bytes=full // contract.page_size,
        sliding_bytes=sliding // contract.page_size,
        mean_steps=mean_steps,
        least_steps=min(2, most_steps),
        most_steps=most_steps,
        recomputes=False,
        source=f"profile.json of {directory.name}, measured {profile.date} on {profile.machine}",
    )
