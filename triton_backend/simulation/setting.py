"""What is simulated: how a model is served, and on how many workers; values only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from triton_backend.cost_model import CostModel, Curve
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import KvShape
from triton_backend.policy import Policy, Prefill


class Placement(Enum):
    """Which workers do what.

    COLOCATED ones do everything. DISAGGREGATED ones compute prompts or denoise, and hand keys and
    values over between. HYBRID is the same with workers that do both where others only denoise,
    so that prompts overflow to them.
    """

    COLOCATED = "colocated"
    DISAGGREGATED = "disaggregated"
    HYBRID = "hybrid"


@dataclass(frozen=True)
class Fleet:
    """`prefill` workers for prompts, where the placement has them, and `others`."""

    placement: Placement
    others: int
    prefill: int = 0

    @property
    def name(self) -> str:
        """As papers write it: 8C, 5P3D, 5P3C."""
        last = "D" if self.placement is Placement.DISAGGREGATED else "C"
        return (f"{self.prefill}P" if self.prefill else "") + f"{self.others}{last}"


@dataclass(frozen=True)
class Model:
    """A model as one worker serves it; lengths in tokens.

    `recomputes`: every canvas is a pass over the whole sequence first, its open slots included,
    as in block diffusion without a causal context. `mean_steps` is the mean of a canvas's
    denoising steps, which are drawn (1 + Poisson) between `least_steps` and `most_steps`.
    `full_bytes` and `sliding_bytes` are those of a token's keys and values in either KV group.
    """

    name: str
    cost: CostModel
    canvas: int
    limits: StepLimits
    kv: KvShape
    full_bytes: int
    sliding_bytes: int
    mean_steps: float
    least_steps: int
    most_steps: int
    recomputes: bool
    source: str

    def handed_over_bytes(self, tokens: int) -> int:
        """Bytes of a context that moves to another worker: of sliding layers, what is seen."""
        seen = min(tokens, self.kv.behind)
        return tokens * self.full_bytes + seen * self.sliding_bytes


@dataclass(frozen=True)
class Setting:
    """A whole simulation but for its arrivals.

    Handed-over keys and values move at `link` bytes a second; prompts overflow where every prefill
    worker has `overload` tokens to do; a request is good if it takes at most `slo` seconds.
    `prefill_budget` is the tokens that a prefill worker batches.
    """

    model: Model
    fleet: Fleet
    policy: Policy = field(default_factory=Policy)
    prefix_cache: bool = False
    link: float = 300e9
    overload: int = 16384
    prefill_budget: int = 4096
    slo: float = 30.0

    @property
    def prefill_policy(self) -> Policy:
        """How a worker that only computes prompts chooses."""
        whole = Prefill.DEFICIT if self.model.recomputes else Prefill.CHUNKED
        return replace(self.policy, prefill=whole, token_budget=self.prefill_budget, fusion=False)


H100_LLADA = Curve(
    (
        (32, 0.0122), (128, 0.0122), (256, 0.0132), (512, 0.0165), (1024, 0.0290),
        (2048, 0.0583), (4096, 0.120), (8192, 0.251),
    )
)  # fmt: skip
"""Seconds by tokens in the batch: LLaDA-8B on one H100, the profile published with TeDiServe (its
dip of 0.1 ms between 32 and 128 tokens levelled)."""

_SOURCE = "step times of LLaDA-8B on an H100, as published with TeDiServe"

LLADA = Model(
    name="llada",
    cost=CostModel(H100_LLADA),
    canvas=32,
    limits=StepLimits(65536, 256, 65536, 8192),
    kv=KvShape(64, 0, 1408, 1408),
    full_bytes=524288,
    sliding_bytes=0,
    mean_steps=9.5,
    least_steps=1,
    most_steps=32,
    recomputes=True,
    source=_SOURCE,
)
"""Block diffusion that computes the whole sequence anew for every block of 32 tokens."""

DIFFUSION_GEMMA = Model(
    name="diffusion-gemma",
    cost=CostModel(H100_LLADA),
    canvas=256,
    limits=StepLimits(16384, 256, 65536, 8192),
    kv=KvShape(64, 1024, 4096, 1100),
    full_bytes=20480,
    sliding_bytes=204800,
    mean_steps=12.0,
    least_steps=2,
    most_steps=48,
    recomputes=False,
    source=_SOURCE + ", of another model: no measurement of DiffusionGemma",
)
"""Canvases of 256 over a causal context that is computed once."""

MODELS = {model.name: model for model in (LLADA, DIFFUSION_GEMMA)}
