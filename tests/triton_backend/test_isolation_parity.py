"""Canvases with prompt tokens of their own, on a compiled engine: each gets its lone answer."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.session import Policy, Session, read_request
from triton_backend.core import Canvas, Request

# Other shapes of the same executions; in log-probability.
BOUND = 1e-5
OWNS = (0, 1, 7, 8, 9, 23)
POLICIES = {
    "one execution": Policy(),
    "parts of 19": Policy(max_step_tokens=19),
    "unfused": Policy(fusion=False),
    "with known prefixes": Policy(reuse=True),
}


@pytest.fixture(scope="module")
def session(tiny_engine: Path) -> Session:
    return Session(tiny_engine, pages=256)


def tokens(drawn: random.Random, count: int) -> tuple[int, ...]:
    return tuple(drawn.randrange(512) for _ in range(count))


def fan_out(key: int, prompt: int) -> Request:
    drawn = random.Random(prompt)
    shared = tokens(drawn, prompt)
    canvases = []
    for own in OWNS:
        canvas = read_request(0, (), tokens(drawn, 1 + own % 16), (0,)).canvases[0]
        canvases.append(replace(canvas, prompt_ids=tokens(drawn, own)))
    return Request(key, shared, tuple(canvases))


def lone(request: Request, canvas: Canvas) -> Request:
    return Request(7, request.prompt_ids + canvas.prompt_ids, (replace(canvas, prompt_ids=()),))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
# Nothing, around one page of 8, and beyond the window.
@pytest.mark.parametrize("prompt", [0, 1, 7, 8, 9, 60])
def test_every_canvas_gets_its_lone_answer_in_every_position(
    session: Session, prompt: int, policy: Policy
) -> None:
    request = fan_out(1, prompt)
    turned = replace(request, key=2, canvases=request.canvases[::-1])
    served = session.serve([request, turned, fan_out(3, prompt + 3)], policy)
    there, back = served[1].reads, served[2].reads[::-1]
    for n, canvas in enumerate(request.canvases):
        alone = session.serve([lone(request, canvas)])[7].reads[0]
        for read in (there[n], back[n]):
            assert np.abs(read.log_probs - alone.log_probs).max() <= BOUND
            assert np.abs(read.entropy - alone.entropy).max() <= BOUND
            assert (read.argmax == alone.argmax).all()
