"""Generation by the whole model: a denoising step of many canvases, and whole generations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.gpu_cases import Finding, Timed
from benchmarks.gpu_context import Context
from benchmarks.gpu_counts import Work, denoise_head, step_bytes, step_flops
from benchmarks.gpu_model import BenchModel, packed_read
from benchmarks.gpu_session import DeviceSession
from benchmarks.parity_generation import generation
from plugins.spec import Phase
from triton_backend.core import Request
from triton_backend.device.runner import DeviceRunner

NEVER = {"confidence_threshold": 1e-9, "stability_threshold": 64}
"""Stops nothing: no canvas is this sure, and none stays the same for so long."""


def step(context: Context, canvases: int) -> Iterator[Timed]:
    """One denoising step behind a prompt; its tokens are a canvas's share of so many steps."""
    model, sizes = context.model, context.sizes
    canvases = min(canvases, 2) if context.interpreted else canvases
    geometry = model.sizes.geometry
    width = geometry.canvas_length
    packed, pages = packed_read(model.sizes, canvases, sizes.prompt, (Phase.DENOISE,))
    inputs = model.inputs(packed, model.pools(pages))
    rows = canvases * width
    every = torch.arange(rows, device=context.device)
    inputs = inputs._replace(output_rows=every)
    temperature = torch.full((rows,), 0.6, device=context.device)
    draws = torch.stack([every, every, every], 1)

    def run() -> tuple[Tensor, ...]:
        with torch.inference_mode():
            hidden = model.executor.step(inputs)
            found: tuple[Tensor, ...] = model.executor.denoise(hidden, temperature, draws)
            return found

    work = Work(step_bytes(geometry, rows, rows), step_flops(geometry, rows))
    work += Work(0, denoise_head(geometry, rows).flops)
    group = f"canvases: {canvases} x {width}, {model.layers} layers"
    tokens = rows // sizes.steps
    yield context.timed(group, f"denoising step, 1/{sizes.steps} of a canvas", run, work, tokens)


def _requests(model: BenchModel, session: DeviceSession, canvases: int) -> list[Request]:
    """Generations of one canvas each, with a fixed number of steps and no stop ids."""
    drawn = random.Random(0)
    sizes = model.sizes
    made = []
    for key in range(canvases):
        prompt = [drawn.randrange(sizes.geometry.vocab_size) for _ in range(sizes.prompt)]
        request = generation(session, key, prompt, 1, max_steps=sizes.steps, **NEVER)
        assert request.generation is not None
        endless = replace(request.generation, stop_ids=frozenset())
        made.append(replace(request, generation=endless))
    return made


def whole(context: Context, canvases: int) -> Iterator[Finding | Timed]:
    """Whole generations by the server's scheduler and runner, the prompts' executions included."""
    model = context.model
    canvases = min(canvases, 2) if context.interpreted else canvases
    width = model.sizes.geometry.canvas_length
    each = -(-(model.sizes.prompt + 3 * width) // model.sizes.page) + 2
    runner = DeviceRunner(model.contract, model.executor)
    session = DeviceSession(model.contract, runner, pages=canvases * each)
    requests = _requests(model, session, canvases)
    replies = session.serve(requests)
    written = [reply.written for reply in replies.values()]
    right = all(w is not None and w.steps == (model.sizes.steps,) for w in written)
    group = f"canvases: {canvases} x {width}, {model.layers} layers"
    yield Finding(f"{group}: generations of other lengths", 0.0 if right else 1.0, 0.0)
    repeats = 1 if context.interpreted else 3
    milliseconds = context.clock.eager(lambda: session.serve(requests), repeats)
    path = f"whole generation, {model.sizes.steps} steps, eager"
    yield Timed(group, path, None, milliseconds, tokens=canvases * width, note="host included")
