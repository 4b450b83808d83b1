"""Generation step by step against transformers' own `generate`, the same random draws in both.

Every step is compared: the argmax canvas, the accepted positions (through the noise that the
others got) and the canvas that goes on, so also the step it stops at.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks.session import Policy, Session
from examples.tickets.generator import BOOKS, tickets
from examples.tickets.tasks import reply_prompt
from tests.oracle_generation import OracleStep, generate
from triton_backend.accept import EntropyBound
from triton_backend.core import Generation, Request
from triton_backend.denoise import CanvasState, Denoising
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).resolve().parents[1] / "examples" / "tickets" / "checkpoint"

TIE = 1e-4
"""A decision nearer than this to its alternative may fall either way, by rounding alone."""


@dataclass
class Found:
    """What was compared; `parted` names requests that differ where no decision was a tie."""

    requests: int = 0
    steps: int = 0
    canvases: int = 0
    ties: int = 0
    parted: list[str] = field(default_factory=list)


def generation(
    session: Session, key: int, prompt: Iterable[int], canvases: int, **changes: object
) -> Request:
    """A generation of whole canvases and few steps, with the checkpoint's stop ids."""
    geometry = session.contract.geometry
    settings = {
        "seed": key, "max_steps": 6, "t_min": 0.4, "t_max": 0.8, "rule": EntropyBound(0.1),
        "stability_threshold": 1, "confidence_threshold": 0.005, **changes,
    }  # fmt: skip
    width = geometry.canvas_length
    return Request(
        key,
        tuple(prompt),
        generation=Generation(
            max_tokens=canvases * width,
            canvas_length=width,
            denoising=Denoising(**settings),  # type: ignore[arg-type]
            stop_ids=frozenset(session.contract.stop_ids),
        ),
    )


def make_generations(session: Session, lengths: Iterable[int], seed: int = 0) -> list[Request]:
    """One generation a prompt length, of 1 to 4 canvases in turn, some stopping early."""
    drawn = random.Random(seed)
    vocab = session.contract.geometry.vocab_size
    made = []
    for key, length in enumerate(lengths):
        prompt = [drawn.randrange(vocab) for _ in range(length)]
        # Random weights are never sure of anything: only near temperature 0 do they settle.
        settles = {"t_min": 0.005, "t_max": 0.02, "confidence_threshold": 2.0}
        changes = settles if key % 3 == 0 else {}
        rule = EntropyBound((30.0, 0.1, 2.0)[key % 3])
        made.append(generation(session, key, prompt, 1 + key % 4, rule=rule, **changes))
    return made


def boundary_generations(session: Session, demo: bool) -> list[Request]:
    """Prompts around every boundary; of the demo, replies to tickets, which stop by themselves."""
    geometry, limits = session.contract.geometry, session.contract.limits
    if demo:
        return ticket_generations(session)
    window, page = geometry.sliding_window, session.contract.page_size
    marks = {page, 2 * page, window, 2 * window, 3 * window}
    lengths = {1, 2, *(mark + d for mark in marks for d in (-1, 0, 1))}
    room = limits.max_context - 4 * geometry.canvas_length
    return make_generations(session, sorted(n for n in lengths if n <= room))


def ticket_generations(session: Session, count: int = 12) -> list[Request]:
    """Replies to training and held-out tickets, with the checkpoint's own schedule."""
    tokenizer = Tokenizer.load(CHECKPOINT)
    made = []
    for key in range(count):
        ticket = next(tickets(key, heldout=bool(key % 2)))
        book = BOOKS[ticket.language]
        ask = (book.reply_asks if key % 3 else book.long_reply_asks)[0]
        prompt = reply_prompt(tokenizer, ticket.text, ask)
        made.append(generation(session, key, prompt, 2, max_steps=48))
    return made


Truth = dict[int, tuple[list[int], list[OracleStep]]]


def oracle(model: DiffusionGemmaForBlockDiffusion, requests: Iterable[Request]) -> Truth:
    """transformers' tokens and steps of every request."""
    return {request.key: generate(model, request) for request in requests}


def compare(
    session: Session, requests: list[Request], truth: Truth, policy: Policy, together: bool
) -> Found:
    """Serves the requests alone or all at once, and compares every step with the oracle's."""
    found = Found()
    for batch in [requests] if together else [[request] for request in requests]:
        replies = session.serve(batch, policy)
        for request in batch:
            tokens, steps = truth[request.key]
            written = replies[request.key].written
            assert written is not None, replies[request.key].error
            found.requests += 1
            found.canvases += len(written.steps)
            part = _parting(session.states[request.key], steps, found)
            if part is None:
                same = list(written.token_ids) == tokens[: len(written.token_ids)]
                if not same:
                    found.parted.append(f"request {request.key}: other tokens")
            elif part.margin < TIE:
                found.ties += 1
            else:
                found.parted.append(
                    f"request {request.key}, canvas {part.canvas}, margin {part.margin:.1e}"
                )
    return found


def _parting(
    ours: list[tuple[int, CanvasState]], steps: list[OracleStep], found: Found
) -> OracleStep | None:
    """The first step that differs, or None when all of them and their number agree."""
    for (canvas, state), step in zip(ours, steps, strict=False):
        assert state.argmax is not None
        found.steps += 1
        same = canvas == step.canvas and state.argmax.tolist() == step.argmax
        if not same or state.ids.tolist() != step.next_ids:
            return step
    return None if len(ours) == len(steps) else steps[min(len(ours), len(steps)) - 1]
