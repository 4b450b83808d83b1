"""Sizes that a GPU run works at: the released checkpoint's, or tiny ones; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.gpu_counts import layer_parameters, model_parameters
from build_engine.config import ModelConfig, Rope
from build_engine.contract import FULL, SLIDING, Geometry

PATTERN = 6
"""Layers after which their kinds repeat: five sliding, one full."""

_GIB = 1 << 30


@dataclass(frozen=True)
class Sizes:
    """A model and what is asked of it: tokens of a prompt, denoising steps, slots of a read."""

    config: ModelConfig
    page: int
    prompt: int
    slots: int
    labels: int
    steps: int

    @property
    def geometry(self) -> Geometry:
        return self.config.geometry


def _config(geometry: Geometry) -> ModelConfig:
    return ModelConfig(
        geometry,
        sliding_rope=Rope(1e4, 1.0, False),
        full_rope=Rope(1e6, 0.25, True),
        rms_norm_eps=1e-6,
        max_positions=262_144,
        tied=True,
        has_vision=False,
        stop_ids=(1, 106, 50),
        pad_id=0,
        bos_id=2,
    )


RELEASED = Sizes(
    _config(
        Geometry(
            vocab_size=262_144,
            hidden_size=2816,
            num_layers=30,
            num_heads=16,
            layer_types=((SLIDING,) * 5 + (FULL,)) * 5,
            sliding_window=1024,
            sliding_kv_heads=8,
            sliding_head_dim=256,
            full_kv_heads=2,
            full_head_dim=512,
            intermediate_size=2112,
            num_experts=128,
            top_k_experts=8,
            moe_intermediate_size=704,
            canvas_length=256,
            softcap=30.0,
        )
    ),
    page=64,
    prompt=512,
    slots=8,
    labels=8,
    steps=8,
)
"""google/diffusiongemma-26B-A4B-it."""

TINY = Sizes(
    _config(
        Geometry(
            vocab_size=300,
            hidden_size=64,
            num_layers=2,
            num_heads=4,
            layer_types=(SLIDING, FULL),
            sliding_window=32,
            sliding_kv_heads=2,
            sliding_head_dim=16,
            full_kv_heads=1,
            full_head_dim=32,
            intermediate_size=96,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=40,
            canvas_length=8,
            softcap=30.0,
        )
    ),
    page=8,
    prompt=12,
    slots=3,
    labels=2,
    steps=2,
)
"""What the interpreter can run in seconds."""


def with_layers(sizes: Sizes, layers: int) -> Sizes:
    """The same model with its first layers alone."""
    kinds = sizes.geometry.layer_types[:layers]
    geometry = replace(sizes.geometry, num_layers=layers, layer_types=kinds)
    return replace(sizes, config=replace(sizes.config, geometry=geometry))


def layers_that_fit(geometry: Geometry, free_gib: float, share: float = 0.75) -> int:
    """How many layers' bf16 weights fit in a share of the free memory: all, or whole patterns.

    0 when not even one pattern fits; the rest of the memory is for pages and activations.
    """
    every = range(geometry.num_layers)
    sizes = [2 * layer_parameters(geometry, n, geometry.num_experts) / _GIB for n in every]
    room = free_gib * share - (2 * model_parameters(geometry) / _GIB - sum(sizes))
    if sum(sizes) <= room:
        return geometry.num_layers
    patterns = int(room // sum(sizes[:PATTERN])) if room > 0 else 0
    return PATTERN * patterns
