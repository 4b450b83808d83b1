"""Block-diffusion generation: transformers' `generate` against the engine, in one run.

Both take the same number of denoising steps: nothing stops early and no token ends the text.
Run: python -m benchmarks.bench_generate
"""

from __future__ import annotations

import argparse
import logging
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from transformers.utils import logging as transformers_logging

from benchmarks.generate_report import Figures, Writing, write_report
from benchmarks.hf_peer import HfPeer
from benchmarks.machine_floor import Product, floor_seconds, product_seconds
from benchmarks.midsize import engine_of, midsize_checkpoint
from benchmarks.parity_generation import generation
from benchmarks.session import Policy, Session
from benchmarks.timing import alternate, emit, medians
from build_engine.contract import Geometry
from triton_backend.core import Request

PROMPT, CANVASES, STEPS = 128, 2, 8
DEMO = Path("examples/tickets/checkpoint")
# Stops nothing: no canvas is this sure, and none stays the same for so long.
NEVER = {"max_steps": STEPS, "confidence_threshold": 1e-9, "stability_threshold": 64}
console = Console(stderr=True)


def make_requests(session: Session, count: int) -> list[Request]:
    """Generations after prompts of random tokens, with a fixed number of steps and no stop ids."""
    drawn = random.Random(0)
    vocab = session.contract.geometry.vocab_size
    prompts = [[drawn.randrange(vocab) for _ in range(PROMPT)] for _ in range(count)]
    made = [generation(session, n, prompt, CANVASES, **NEVER) for n, prompt in enumerate(prompts)]
    return [
        replace(request, generation=replace(request.generation, stop_ids=frozenset()))
        for request in made
        if request.generation is not None
    ]


def floor(geometry: Geometry, count: int, dtype: torch.dtype) -> float:
    """Seconds of torch's own matrix products for the rows of all fused executions."""
    width, vocab, hidden = geometry.canvas_length, geometry.vocab_size, geometry.hidden_size
    first, _ = floor_seconds(geometry, count * (PROMPT + width), dtype)
    commit, _ = floor_seconds(geometry, count * 2 * width, dtype)
    plain, _ = floor_seconds(geometry, count * width, dtype)
    executions = STEPS * CANVASES
    layers = first + (CANVASES - 1) * commit + (executions - CANVASES) * plain
    # The head: logits, and the soft embedding of every position.
    logits = product_seconds(Product(count * width, hidden, vocab, 1), dtype, 5)
    soft = product_seconds(Product(count * width, vocab, hidden, 1), dtype, 5)
    return layers + executions * (logits + soft)


def paths(
    peer: HfPeer, session: Session, requests: list[Request]
) -> dict[str, Callable[[], object]]:
    """What is compared, by name."""
    prompts = torch.tensor([request.prompt_ids for request in requests])
    ours: dict[str, Callable[[], object]] = {
        "unfused": lambda: session.serve(requests, Policy(fusion=False)),
        "fused": lambda: session.serve(requests),
    }
    if len(requests) == 1:
        return {"transformers": lambda: peer.generate(prompts, CANVASES, STEPS), **ours}
    return {
        "transformers one by one": lambda: [
            peer.generate(prompt[None], CANVASES, STEPS) for prompt in prompts
        ],
        "transformers batch": lambda: peer.generate(prompts, CANVASES, STEPS),
        **ours,
    }


def measure(name: str, checkpoint: Path, rounds: dict[int, int], figures: Figures) -> None:
    """Seconds of every path at each concurrency, and the floor, into `figures`."""
    session = Session(engine_of(name, checkpoint), pages=1024)
    geometry = session.contract.geometry
    peer = HfPeer(checkpoint, torch.float32)
    for count, repeats in rounds.items():
        requests = make_requests(session, count)
        prompts = torch.tensor([request.prompt_ids for request in requests])
        canvases = torch.zeros(count, geometry.canvas_length, dtype=torch.int64)
        peer.choose_experts(prompts, canvases)
        _check(peer, session, requests[0])
        console.print(f"{name} x{count}: transformers experts {peer.experts}")
        times = alternate(paths(peer, session, requests), repeats, warmups=int(count == 1))
        tokens = count * CANVASES * geometry.canvas_length
        least = floor(geometry, count, torch.float32)
        figures.points[name, count] = Writing(medians(times), least, tokens)


def _check(peer: HfPeer, session: Session, request: Request) -> None:
    """Both write the tokens and take the steps that they are said to."""
    reply = session.serve([request])[request.key]
    assert reply.written is not None
    assert reply.written.steps == (STEPS,) * CANVASES
    written = peer.generate(torch.tensor([request.prompt_ids]), CANVASES, STEPS)
    assert written.shape[1] - PROMPT == len(reply.written.token_ids)


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--rounds", type=int, default=7, help="rounds at concurrency 1")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--compiled", action="store_true", help="transformers' compiled path too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    transformers_logging.disable_progress_bar()
    figures = Figures()
    rounds = {1: options.rounds, 16: max(2, options.rounds // 3)}
    for name, checkpoint in (("mid-size", midsize_checkpoint()), ("demo", DEMO)):
        measure(name, checkpoint, rounds, figures)
    for (name, count), point in figures.points.items():
        context = {"checkpoint": name, "concurrency": count}
        for path in point.seconds:
            emit(
                "tokens_per_second",
                point.rate(path),
                path=path,
                floor_share=point.share(path),
                **context,
            )
        for ratio, value, asked in point.ratios():
            emit(ratio, value, asked=asked if name == "mid-size" else "none", **context)
    if options.compiled:
        figures.compiled = HfPeer(midsize_checkpoint(), torch.float32).try_compiled(
            PROMPT, CANVASES, STEPS
        )
        console.print(figures.compiled)
    console.print(f"report: {write_report(figures, options.report)}")


if __name__ == "__main__":
    main()
