"""Arithmetic that the kernels share: products of tiles, soft caps, gates; knows no op."""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

FLOOR = tl.constexpr(-1e30)
"""Below every logit and score, yet finite: its distance to itself is zero, not NaN."""


@triton.jit
def multiply_add(a, b, total):
    """`total` + a @ b in fp32; fp32 tiles keep their precision through three TF32 products."""
    if INTERPRETED:
        # The interpreter holds bfloat16 as bare bits, and multiplies those.
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def hyperbolic_tangent(x):
    """Within 2e-7 of tanh(x); near zero within that of x, where the quotient has lost digits."""
    square = x * x
    series = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    quotient = 1 - 2 / (tl.exp(2 * x) + 1)
    return tl.where(tl.abs(x) < 0.1, series, quotient)


@triton.jit
def gelu_tanh(x):
    """x / 2 * (1 + tanh(u)) as x times the logistic of 2 u; infinities on the way are harmless."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x / (1 + tl.exp(-2 * u))


@triton.jit
def capped_logits(hidden, embedding, row, identity, rows, plan: tl.constexpr):
    """Soft-capped logits [row, identity] in fp32; both are vectors of indices.

    hidden [rows, H] and embedding [V, H] are read `plan.step` columns at a time. What lies past
    `rows` or V counts as zero.
    """
    HIDDEN: tl.constexpr = plan.hidden
    STEP: tl.constexpr = plan.step
    ROWS: tl.constexpr = plan.rows
    IDS: tl.constexpr = plan.ids
    depth = tl.arange(0, STEP)
    hidden += row.to(tl.int64)[:, None] * HIDDEN + depth[None, :]
    embedding += identity.to(tl.int64)[None, :] * HIDDEN + depth[:, None]
    known = identity < plan.vocabulary
    total = tl.zeros([ROWS, IDS], tl.float32)
    for start in range(0, HIDDEN, STEP):
        inside = start + depth < HIDDEN
        left = tl.load(hidden + start, (row < rows)[:, None] & inside[None, :], 0.0)
        right = tl.load(embedding + start, known[None, :] & inside[:, None], 0.0)
        total = multiply_add(left, right, total)
    return plan.softcap * hyperbolic_tangent(total * (1 / plan.softcap))
