"""What the machine's own matrix product would take for the model's products alone.

The floor is torch's own matmul (MKL, oneDNN) at the shapes of one execution, nothing else.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from build_engine.contract import Geometry


@dataclass(frozen=True)
class Product:
    """One matrix product [rows, inner] x [inner, outer], repeated `count` times an execution."""

    rows: int
    inner: int
    outer: int
    count: int

    @property
    def flops(self) -> int:
        """Floating-point operations of all repeats."""
        return 2 * self.rows * self.inner * self.outer * self.count


def products(geometry: Geometry, rows: int) -> list[Product]:
    """All products of the layers over `rows` rows; experts at their average share of the rows."""
    hidden, dense = geometry.hidden_size, geometry.intermediate_size
    width, experts = geometry.moe_intermediate_size, geometry.num_experts
    share = max(1, rows * geometry.top_k_experts // experts)
    layers = geometry.num_layers
    found = [
        Product(rows, hidden, dense, 2 * layers),
        Product(rows, dense, hidden, layers),
        Product(share, hidden, 2 * width, experts * layers),
        Product(share, width, hidden, experts * layers),
    ]
    for layer in range(layers):
        queries = geometry.num_heads * geometry.head_dim(layer)
        keys = geometry.kv_heads(layer) * geometry.head_dim(layer)
        found += [
            Product(rows, hidden, queries, 1),
            Product(rows, queries, hidden, 1),
            Product(rows, hidden, keys, 2 if geometry.is_sliding(layer) else 1),
        ]
    return found


def product_seconds(product: Product, dtype: torch.dtype, repeats: int) -> float:
    """Median seconds of a product, all its repeats together."""
    left = torch.randn(product.rows, product.inner).to(dtype)
    right = torch.randn(product.outer, product.inner).to(dtype).t()
    torch.mm(left, right)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * product.count


def floor_seconds(
    geometry: Geometry, rows: int, dtype: torch.dtype, repeats: int = 15
) -> tuple[float, float]:
    """(seconds, floating-point operations) of all products of one execution over `rows` rows."""
    measured: dict[tuple[int, int, int], float] = {}
    total, flops = 0.0, 0
    for product in products(geometry, rows):
        key = (product.rows, product.inner, product.outer)
        if key not in measured:
            one = Product(product.rows, product.inner, product.outer, 1)
            measured[key] = product_seconds(one, dtype, repeats)
        total += measured[key] * product.count
        flops += product.flops
    return total, flops
