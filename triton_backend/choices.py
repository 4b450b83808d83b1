"""What a server chooses by its engine's profile: the token budget, and which pages to swap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.config import ServeConfig
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import Sequence
from triton_backend.policy import Policy, Prefill
from triton_backend.profile_file import Profile, load_profile


@dataclass(frozen=True)
class Choices:
    """The policy with its budget, and whether a preempted context is better swapped than dropped
    and computed anew; without a profile it is always swapped, where there is room."""

    policy: Policy
    prefers_swap: Callable[[Sequence], bool]


def choose(
    config: ServeConfig, directory: Path, contract: EngineContract, limits: StepLimits
) -> Choices:
    """As configured, else as the profile says.

    Raises:
        EngineError: no profile where one is needed, one that is none, or a budget that no canvas
            fits.
    """
    profile = load_profile(directory)
    policy, widest = config.policy, min(contract.limits.max_canvas, limits.max_tokens)
    if config.step_seconds:
        policy = replace(policy, token_budget=_budget(config.step_seconds, profile, limits, widest))
    if 0 < policy.token_budget < widest and policy.prefill is Prefill.CHUNKED:
        raise EngineError(
            f"token_budget is {policy.token_budget}, a canvas may have {widest} rows and must fit; "
            "raise it."
        )
    if profile is None:
        return Choices(policy, lambda _: True)
    budget = policy.budget(limits.max_tokens)
    return Choices(policy, profile.swap_choice(contract, budget))


def _budget(seconds: float, profile: Profile | None, limits: StepLimits, widest: int) -> int:
    """The most rows of an execution that takes no longer, whatever their phases."""
    if profile is None:
        raise EngineError(
            f"step_seconds is {seconds:g}, and the engine has no profile.json to choose a budget "
            "by; run `make profile` first."
        )
    budget = profile.cost.largest_budget(seconds, limits.max_tokens)
    if budget < widest:
        raise EngineError(
            f"step_seconds is {seconds:g}, by profile.json only {budget} rows take no longer and a "
            f"canvas may have {widest}; raise it."
        )
    return budget
