"""Reads a state and questions about it, and builds what answers them; knows no ready canvas.

Joint questions share a prompt and a canvas. Isolated ones have a canvas each, and behind the part
of the prompt that all share the rest of what would be their prompt alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_backend import fields
from triton_backend.canvas_fields import MAX_CANVASES
from triton_backend.core import Canvas, RequestError
from triton_backend.fields import Inputs
from triton_backend.limits import RequestLimits
from triton_backend.questions import Question, QuestionError, build_reads, parse_questions
from triton_backend.tokenizer import Tokenizer, TokenizerError

JOINT, ISOLATED = "joint", "isolated"
MOST_TEXTS = 16
"""How often the longest text may be tokenised for one request, its parts counted together."""


@dataclass(frozen=True)
class QuestionRead:
    """Questions in the order given, which is that of all slots of the canvases."""

    questions: tuple[Question, ...]
    prompt_ids: tuple[int, ...]
    canvases: tuple[Canvas, ...]


def read_questions(
    inputs: Inputs, tokenizer: Tokenizer, limits: RequestLimits, seed: int
) -> QuestionRead:
    """The read that `text_input`, `questions` and `isolation` ask for.

    Raises:
        RequestError: a state or questions that cannot be asked.
    """
    isolated = _isolated(inputs)
    state = _state(inputs, limits)
    asked = fields.text(inputs, "questions", limits.max_text_bytes)
    try:
        questions = parse_questions(asked)
        groups = [questions]
        if isolated:
            groups = [(question,) for question in questions]
            _check_isolated(state, len(groups), limits)
        made = build_reads(tokenizer, state, groups, limits.max_canvas, seed)
    except (QuestionError, TokenizerError) as error:
        raise RequestError.saying(str(error)) from error
    columns = max(len(ids) for plan in made.plans for ids in plan.label_ids)
    canvases = tuple(
        Canvas(plan.canvas_ids, plan.slots, plan.label_ids, columns, prompt_ids=plan.prompt_ids)
        for plan in made.plans
    )
    return QuestionRead(questions, made.shared_ids, canvases)


def _isolated(inputs: Inputs) -> bool:
    if "isolation" not in inputs:
        return False
    said = fields.text(inputs, "isolation", 64)
    if said not in (JOINT, ISOLATED):
        raise RequestError("isolation", f"is {said!r}", f"known are {JOINT!r} and {ISOLATED!r}")
    return said == ISOLATED


def _state(inputs: Inputs, limits: RequestLimits) -> str:
    if "text_input" not in inputs:
        raise RequestError("text_input", "is missing", "questions are about a state")
    state = fields.text(inputs, "text_input", limits.max_text_bytes)
    if not state.strip():
        raise RequestError("text_input", "is empty", "a state needs 1 visible character")
    return state


def _check_isolated(state: str, count: int, limits: RequestLimits) -> None:
    """Every isolated question may have to be tokenised behind the state, which takes its time."""
    if count > MAX_CANVASES:
        raise RequestError("questions", f"holds {count}", f"{MAX_CANVASES} can be isolated")
    total, most = len(state.encode("utf-8", "replace")) * count, MOST_TEXTS * limits.max_text_bytes
    if total > most:
        raise RequestError(
            f"text_input, once for each of {count} isolated questions,", f"has {total} bytes",
            f"the limit is {most} together",
        )  # fmt: skip
