"""Gumbel variates by counter, as plugins.philox defines the words; knows no logits."""

import triton
import triton.language as tl

from plugins.spec import DRAW_FIELDS, POSITION, SEED, STEP, Stream

_FIELDS = tl.constexpr(DRAW_FIELDS)
_SEED, _POSITION, _STEP = tl.constexpr(SEED), tl.constexpr(POSITION), tl.constexpr(STEP)
_CANDIDATE = tl.constexpr(int(Stream.CANDIDATE))


@triton.jit
def candidate_words(draws, row, rows, block):
    """Words [row, 4 * block] of ids that neighbour each other by four, which share a counter.

    draws [rows, 3] int64: seed, position, step; `row` and `block` are vectors of indices.
    """
    at = draws + row.to(tl.int64) * _FIELDS
    seed = tl.load(at + _SEED, row < rows, 0)
    position = tl.load(at + _POSITION, row < rows, 0).to(tl.uint32)[:, None]
    step = tl.load(at + _STEP, row < rows, 0).to(tl.uint32)[:, None]
    low = (seed & 0xFFFFFFFF).to(tl.uint32)[:, None]
    high = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)[:, None]
    zero = block.to(tl.uint32)[None, :] * 0 + position * 0
    counter = zero + block.to(tl.uint32)[None, :]
    first, second, third, fourth = tl.philox_impl(
        counter, zero + position, zero + step, zero + _CANDIDATE, zero + low, zero + high
    )
    return tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))


@triton.jit
def minus_log_uniform(word):
    """-log(u) of u = ((word >> 8) + 0.5) * 2^-24, within a few units in the last place.

    Near u = 1, where draws are decided, it is the distance of u to 1 that must be exact: fp32
    cannot hold u itself. The series is that of plugins/csrc/random.h.
    """
    odd = ((word >> 8) * 2 + 1).to(tl.int32)
    upper = odd >= 16777216
    value = odd.to(tl.float32)
    bits = value.to(tl.int32, bitcast=True)
    halvings = tl.where(upper, 0, 151 - (bits >> 23)).to(tl.float32)
    significand = ((bits & 0x007FFFFF) | 0x3F000000).to(tl.float32, bitcast=True)
    above = (33554432 - odd).to(tl.float32) * 2.9802322387695312e-08
    d = tl.where(upper, above, 1 - significand)
    series = d * 1.7756370306 - 2.5526239872
    series = series * d + 2.0467464924
    series = series * d - 0.6334820986
    series = series * d + 0.3533571959
    series = series * d + 0.1732924283
    series = series * d + 0.2521618605
    series = series * d + 0.3332453966
    series = series * d + 0.5000013709
    return halvings * 0.693147180559945 + d * (series * d + 1)


@triton.jit
def gumbel(draws, row, rows, block):
    """Variates [row, 4 * block] in fp32."""
    return -tl.log(minus_log_uniform(candidate_words(draws, row, rows, block)))
