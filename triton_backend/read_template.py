"""Owns how questions become a prompt, a seeded canvas and its slots; must not know engines."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from triton_backend.prompts import render_all, shared_length
from triton_backend.question_parse import Question, QuestionError, as_text
from triton_backend.tokenizer import Tokenizer

WIDTH_STEP = 16
CLOSING = "Reply with one line per question: number, colon, label."


@dataclass(frozen=True)
class ReadPlan:
    """A read ready for the engine; slots and label_ids follow the order of the questions."""

    prompt_ids: tuple[int, ...]
    canvas_ids: tuple[int, ...]
    slots: tuple[int, ...]
    label_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SharedRead:
    """Reads over one state; each plan's prompt is what follows the ids that all prompts share."""

    shared_ids: tuple[int, ...]
    plans: tuple[ReadPlan, ...]


@dataclass(frozen=True)
class AnswerTemplate:
    """The answer with every first label in place: ids, and per question its slot and label ids."""

    ids: tuple[int, ...]
    slots: tuple[int, ...]
    label_ids: tuple[tuple[int, ...], ...]


def build_read(
    tokenizer: Tokenizer,
    state: str,
    questions: tuple[Question, ...],
    canvas_limit: int,
    seed: int,
) -> ReadPlan:
    """Prompt and one canvas shared by all the questions; a pure function of its arguments.

    A state of nothing but whitespace is refused. Every slot holds one id drawn uniformly from
    the whole vocabulary, in question order.
    """
    (prompt,) = render_all(tokenizer, _head(state), [_asked(questions)])
    return _plan(tokenizer, prompt, questions, canvas_limit, seed)


def build_reads(
    tokenizer: Tokenizer,
    state: str,
    groups: Sequence[tuple[Question, ...]],
    canvas_limit: int,
    seed: int,
) -> SharedRead:
    """A canvas for each group of questions, each with prompt, slots and noise as if alone."""
    prompts = render_all(tokenizer, _head(state), [_asked(group) for group in groups])
    count = shared_length(prompts)
    plans = (
        _plan(tokenizer, prompt[count:], group, canvas_limit, seed)
        for prompt, group in zip(prompts, groups, strict=True)
    )
    return SharedRead(prompts[0][:count], tuple(plans))


def _plan(
    tokenizer: Tokenizer,
    prompt: tuple[int, ...],
    questions: tuple[Question, ...],
    canvas_limit: int,
    seed: int,
) -> ReadPlan:
    answer = answer_template(tokenizer, tuple(q.labels for q in questions), canvas_limit)
    draw = random.Random(seed)
    canvas = list(answer.ids)
    for slot in answer.slots:
        canvas[slot] = draw.randrange(tokenizer.vocab_size)
    return ReadPlan(prompt, tuple(canvas), answer.slots, answer.label_ids)


def _head(state: str) -> str:
    """What the model is asked about."""
    if not as_text(state, "state").strip():
        raise QuestionError("state is empty, at least 1 character other than whitespace is needed")
    return f"{state.strip()}\n\n"


def _asked(questions: tuple[Question, ...]) -> str:
    """What the model is asked; question ids are not part of it."""
    asked = (_question_text(number, q) for number, q in enumerate(questions, start=1))
    return "\n".join([*asked, CLOSING])


def canvas_width(needed: int, limit: int) -> int:
    """The width for `needed` ids: rounded up to WIDTH_STEP, never over the limit."""
    if needed > limit:
        raise QuestionError(f"the answers need a canvas of {needed} tokens, the limit is {limit}")
    return min(-(-needed // WIDTH_STEP) * WIDTH_STEP, limit)


@lru_cache(maxsize=1024)
def answer_template(
    tokenizer: Tokenizer, labels: tuple[tuple[str, ...], ...], canvas_limit: int
) -> AnswerTemplate:
    """The canvas before noise, and the slots found by writing every other label in its place."""
    first = [options[0] for options in labels]
    base = tokenizer.encode(_answer_text(first))
    head = tokenizer.thought_ids
    tail = (tokenizer.end_of_turn_id,)
    width = canvas_width(len(head) + len(base) + len(tail), canvas_limit)
    found = [_slot(tokenizer, first, base, at, options) for at, options in enumerate(labels)]
    ids = head + base + tail
    return AnswerTemplate(
        ids=ids + (tokenizer.pad_id,) * (width - len(ids)),
        slots=tuple(len(head) + slot for slot, _ in found),
        label_ids=tuple(label_ids for _, label_ids in found),
    )


def _slot(
    tokenizer: Tokenizer, first: list[str], base: tuple[int, ...], at: int, labels: tuple[str, ...]
) -> tuple[int, tuple[int, ...]]:
    """Where the labels of question `at` stand, and their ids there."""
    slot: int | None = None
    ids: list[int] = []
    for label in labels[1:]:
        other = tokenizer.encode(_answer_text([*first[:at], label, *first[at + 1 :]]))
        changed = [i for i, pair in enumerate(zip(base, other, strict=False)) if pair[0] != pair[1]]
        if len(other) != len(base) or len(changed) != 1 or slot not in (None, changed[0]):
            raise QuestionError(f"question {at + 1}: label {label!r} is not one token in context")
        slot = changed[0]
        ids.append(other[slot])
    if slot is None or len({base[slot], *ids}) != len(labels):
        raise QuestionError(f"question {at + 1}: labels {labels} do not have distinct token ids")
    return slot, (base[slot], *ids)


def _answer_text(labels: list[str]) -> str:
    return "\n".join(f"{number}: {label}" for number, label in enumerate(labels, start=1))


def _question_text(number: int, question: Question) -> str:
    lines = [f"Question {number}: {question.instructions}".rstrip()]
    for option in question.options:
        lines.append(f"- {option.label}: {_option_text(question, option.name, option.description)}")
    return "\n".join(lines)


def _option_text(question: Question, name: str, description: str) -> str:
    if question.kind == "score":
        return description
    if question.kind == "noul":
        return description or {"true": "yes", "false": "no"}[name]
    return f"{name} ({description})" if description else name
