"""Kernels that show what is inside others: random words and their logarithms."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from plugins.gpu.draws import candidate_words, minus_log_uniform


@triton.jit
def words_kernel(draws, rows, out, ROWS: tl.constexpr, BLOCKS: tl.constexpr, FIRST: tl.constexpr):
    row = tl.arange(0, ROWS)
    words = candidate_words(draws, row, rows, FIRST + tl.arange(0, BLOCKS))
    tl.store(out + row[:, None] * 4 * BLOCKS + tl.arange(0, 4 * BLOCKS)[None, :], words)


@triton.jit
def minus_logs_kernel(words, out, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    word = tl.load(words + lane).to(tl.uint32, bitcast=True)
    tl.store(out + lane, minus_log_uniform(word))


def words(draws: Tensor, blocks: int, first: int) -> Tensor:
    """Words [rows, 4 * blocks] of Philox blocks from `first` on, as int32."""
    out = draws.new_empty((len(draws), 4 * blocks), dtype=torch.int32)
    words_kernel[(1,)](draws, len(draws), out, len(draws), blocks, first)
    return out


def minus_logs(words: Tensor) -> Tensor:
    out = torch.empty(len(words))
    minus_logs_kernel[(1,)](words, out, len(words))
    return out
