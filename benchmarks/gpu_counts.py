"""Bytes and floating-point operations that a piece of work takes at the least; imports no torch.

Weights and activations are read once and results written once; a product of [m, k] and [k, n] is
2 m k n operations. Softmaxes, norms and gates are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from build_engine.contract import Geometry


@dataclass(frozen=True)
class Work:
    """The least a piece of work takes."""

    bytes: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)


def product(rows: int, inner: int, outer: int, size: int = 2) -> Work:
    """[rows, inner] x [inner, outer] of elements of `size` bytes."""
    elements = rows * inner + inner * outer + rows * outer
    return Work(size * elements, 2 * rows * inner * outer)


def attention(geometry: Geometry, layer: int, rows: int, keys: int, pairs: int) -> Work:
    """Queries of `rows` over `keys` stored positions, of which `pairs` (row, key) are visible."""
    heads, kv, width = geometry.num_heads, geometry.kv_heads(layer), geometry.head_dim(layer)
    return Work(2 * width * (2 * rows * heads + 2 * keys * kv), 4 * pairs * heads * width)


def causal_pairs(count: int, committed: int = 0) -> int:
    """(row, key) pairs of `count` rows behind `committed` positions, without a window."""
    return count * committed + count * (count + 1) // 2


def touched_experts(geometry: Geometry, rows: int) -> float:
    """Experts that at least one of `rows` rows chooses, on average over uniform routings."""
    miss = 1 - geometry.top_k_experts / geometry.num_experts
    return float(geometry.num_experts * (1 - miss**rows))


def experts(geometry: Geometry, rows: int) -> Work:
    """Routed experts of `rows` rows; each touched expert's weights are read once."""
    hidden, inner = geometry.hidden_size, geometry.moe_intermediate_size
    weights = int(touched_experts(geometry, rows) * 3 * hidden * inner)
    operations = 6 * rows * geometry.top_k_experts * hidden * inner
    return Work(2 * (weights + 2 * rows * hidden), operations)


def label_head(geometry: Geometry, rows: int) -> Work:
    """Logits of `rows` rows, none of them kept."""
    hidden, vocabulary = geometry.hidden_size, geometry.vocab_size
    return Work(2 * hidden * (vocabulary + rows), 2 * rows * hidden * vocabulary)


def denoise_head(geometry: Geometry, rows: int) -> Work:
    """Logits and the soft embedding: the table serves both, and is read once at the least."""
    logits = label_head(geometry, rows)
    return Work(logits.bytes + 2 * rows * geometry.hidden_size, 2 * logits.flops)


def layer_parameters(geometry: Geometry, layer: int, touched: float) -> int:
    """Elements of one layer's weights, of `touched` experts; norms and scalars are not counted."""
    hidden, width = geometry.hidden_size, geometry.head_dim(layer)
    projections = 2 * geometry.num_heads + geometry.kv_heads(layer)
    projections += geometry.kv_heads(layer) if geometry.is_sliding(layer) else 0
    dense = 3 * hidden * geometry.intermediate_size
    routed = int(touched * 3 * hidden * geometry.moe_intermediate_size)
    return hidden * width * projections + dense + routed + hidden * geometry.num_experts


def model_parameters(geometry: Geometry) -> int:
    """Elements of all weights: layers, the token table and self-conditioning."""
    layers = range(geometry.num_layers)
    total = sum(layer_parameters(geometry, n, geometry.num_experts) for n in layers)
    hidden = geometry.hidden_size
    return total + geometry.vocab_size * hidden + 3 * hidden * geometry.intermediate_size


def step_bytes(geometry: Geometry, rows: int, outputs: int) -> int:
    """Bytes of bf16 weights that one execution of `rows` rows and a head must read, each once.

    After the last attention only `outputs` rows go on, so fewer experts are touched there.
    """
    last = geometry.num_layers - 1
    total = sum(
        layer_parameters(geometry, n, touched_experts(geometry, outputs if n == last else rows))
        for n in range(geometry.num_layers)
    )
    hidden = geometry.hidden_size
    return 2 * (total + geometry.vocab_size * hidden + 3 * hidden * geometry.intermediate_size)


def step_flops(geometry: Geometry, rows: int) -> int:
    """Operations of an execution's products over `rows` rows; attention and heads come on top."""
    chosen = geometry.top_k_experts
    layers = range(geometry.num_layers)
    active = sum(layer_parameters(geometry, n, chosen) for n in layers)
    return 2 * rows * active
