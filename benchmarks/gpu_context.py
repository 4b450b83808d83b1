"""What every case is given: the device, the sizes, the clock, random numbers, the big model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.gpu_cases import Timed
from benchmarks.gpu_clock import Clock, CudaClock, Function, WallClock
from benchmarks.gpu_counts import Work
from benchmarks.gpu_sizes import RELEASED, TINY, Sizes

if TYPE_CHECKING:
    from benchmarks.gpu_model import BenchModel

_NOTHING = Work(0, 0)


@dataclass
class Context:
    """`interpreted` cases run on a CPU, at tiny sizes, by Triton's interpreter."""

    interpreted: bool

    @cached_property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.interpreted else "cuda:0")

    @cached_property
    def sizes(self) -> Sizes:
        return TINY if self.interpreted else RELEASED

    @property
    def dtype(self) -> torch.dtype:
        """What is measured is bf16."""
        return torch.bfloat16

    @cached_property
    def clock(self) -> Clock:
        return WallClock() if self.interpreted else CudaClock(self.device)

    @cached_property
    def model(self) -> BenchModel:
        """The whole model with random weights, made on first use and kept."""
        from benchmarks.gpu_model import make_model  # noqa: PLC0415 - few cases need it

        return make_model(self)

    def normal(self, *shape: int, std: float = 1.0, seed: int = 0) -> Tensor:
        """Normal numbers of `dtype` on the device, made there."""
        generator = torch.Generator(self.device).manual_seed(seed + math.prod(shape))
        out = torch.empty(shape, dtype=self.dtype, device=self.device)
        return out.normal_(0, std, generator=generator)

    def uniform(self, *shape: int, seed: int = 0) -> Tensor:
        """fp32 numbers from 0 to 1 on the device."""
        generator = torch.Generator(self.device).manual_seed(seed + math.prod(shape))
        return torch.rand(shape, device=self.device, generator=generator)

    def free_gib(self) -> float:
        """Memory of the device that is free or only cached; without end under the interpreter."""
        if self.interpreted:
            return 1e6
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return float(torch.cuda.mem_get_info(self.device)[0] + cached) / (1 << 30)

    def timed(
        self, group: str, path: str, function: Function, work: Work = _NOTHING, tokens: int = 0
    ) -> Timed:
        """Measures one path of a group."""
        reading = self.clock.measure(function)
        numbers = (reading.graph_ms, reading.eager_ms, work.bytes, work.flops, tokens)
        return Timed(group, path, *numbers, reading.note)
