"""One structured read by the whole model: prompt and canvas in one execution, or in two."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.gpu_cases import Finding, Timed
from benchmarks.gpu_compare import distance
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import Work, step_bytes, step_flops
from benchmarks.gpu_model import BenchModel, packed_read
from build_engine.model import StepInputs
from plugins.spec import Phase

FUSED, SPLIT = "fused", "split"


class _Read:
    """A read's executions with their inputs on the device; calling it runs them all."""

    def __init__(
        self, model: BenchModel, reads: int, prompt: int, phases: tuple[tuple[Phase, ...], ...]
    ) -> None:
        self.executor = model.executor
        packed = [packed_read(model.sizes, reads, prompt, part) for part in phases]
        # All executions of a read share its pages.
        pools = model.pools(max(pages for _, pages in packed))
        self.steps: list[StepInputs] = [model.inputs(one, pools) for one, _ in packed]
        device = model.executor.device
        self.labels = torch.from_numpy(packed[-1][0].label_ids).to(device)
        self.rows = [len(one.token_ids) for one, _ in packed]

    def __call__(self) -> tuple[Tensor, ...]:
        with torch.inference_mode():
            for inputs in self.steps:
                hidden = self.executor.step(inputs)
            found: tuple[Tensor, ...] = self.executor.head(hidden, self.labels)
            return found

    @property
    def work(self) -> Work:
        """Weights by bytes, once an execution, and the products of all rows."""
        geometry = self.executor.step.config.geometry
        slots = len(self.labels)
        table = 2 * geometry.vocab_size * geometry.hidden_size
        # The head reads the token table once, after the last execution.
        moved = sum(step_bytes(geometry, rows, slots) - table for rows in self.rows) + table
        return Work(moved, sum(step_flops(geometry, rows) for rows in self.rows))


def read(context: Context, reads: int, prompt: int) -> Iterator[Finding | Timed]:
    """Fused and split, with the same pages, slots and labels."""
    model = context.model
    if context.interpreted:
        reads, prompt = min(reads, 2), context.sizes.prompt
    width = context.sizes.geometry.canvas_length
    group = f"{reads} x {prompt} + {width} tokens, {model.layers} layers"
    fused = _Read(model, reads, prompt, ((Phase.PREFILL, Phase.DENOISE),))
    split = _Read(model, reads, prompt, ((Phase.PREFILL,), (Phase.DENOISE,)))
    one, two = fused(), split()
    finite = all(bool(x.isfinite().all()) for x in one[:3])
    yield Finding(f"{group}: numbers that are not finite", 0.0 if finite else 1.0, 0.0)
    # Random experts part at the rounding of a near-tie, so this is told, not bounded.
    yield Finding(f"{group}: label logits, fused from split", distance(one[0], two[0]))
    yield context.timed(group, FUSED, fused, fused.work)
    yield context.timed(group, SPLIT, split, split.work)
