"""Owns the reads and replies asked of a ticket, with right answers; must not know training."""

import json
import random
from dataclasses import dataclass

from examples.tickets.generator import BOOKS, Ticket, reply
from examples.tickets.phrasebook import DEPARTMENTS
from triton_backend.questions import Question, build_read, parse_questions
from triton_backend.tokenizer import Tokenizer

CANVAS = 32

INSTRUCTIONS = {
    "department": (
        "Which team should handle this ticket?",
        "Which department is this about?",
        "Choose the team for the customer's problem.",
        "Who must solve this?",
        "어느 팀의 일입니까?",
    ),
    "again": (
        "Will the customer write again?",
        "Is another message from the customer to be expected?",
        "Does the customer plan to send more messages?",
        "Will we hear from this customer again?",
        "고객이 다시 글을 보낼까요?",
    ),
    "urgency": (
        "How urgent is it?",
        "How soon is an answer needed?",
        "Rate the urgency of the ticket.",
        "When must this be done?",
        "얼마나 급합니까?",
    ),
}
ABOUT = {
    "billing": (None, "payments, invoices, refunds", "money and prices"),
    "account": (None, "login, password, profile", "users and sign-in"),
    "technical": (None, "app and device faults", "things that do not work"),
    "shipping": (None, "parcels, delivery, returns", "parcels and couriers"),
}
LEVEL_NAMES = (
    ("no hurry", "some weeks", "a few days", "today", "right now"),
    ("whenever", "this month", "this week", "by tomorrow", "this minute"),
)
OUTCOMES = (
    None,
    {"true": "another message will come", "false": "no more messages"},
    {"true": "yes", "false": "no"},
)


@dataclass(frozen=True)
class Sample:
    """A prompt and the canvas the model should denoise to; slots are the answers of a read."""

    prompt_ids: tuple[int, ...]
    canvas_ids: tuple[int, ...]
    slots: tuple[int, ...]


def right_label(question: Question, ticket: Ticket) -> int:
    """Index of the right option; the question's id says what is asked."""
    if question.id == "department":
        return [option.name for option in question.options].index(ticket.department)
    return {"again": int(not ticket.writes_again), "urgency": ticket.urgency}[question.id]


def random_questions(rng: random.Random, easy: bool = False) -> tuple[Question, ...]:
    """Any of the three, in any order and wording, the options of a choice in any order.

    Easy ones are asked alone and keep the order of the options.
    """
    makers = {"department": _department, "again": _again, "urgency": _urgency}
    names = rng.sample(sorted(makers), 1 if easy else rng.choice((1, 2, 3)))
    asked = {}
    for name in names:
        wording = rng.choice(INSTRUCTIONS[name])
        asked[name] = {**makers[name](rng, easy), "instructions": wording}
    return parse_questions(json.dumps(asked))


def read_sample(tokenizer: Tokenizer, ticket: Ticket, questions: tuple[Question, ...]) -> Sample:
    plan = build_read(tokenizer, ticket.text, questions, CANVAS, seed=0)
    canvas = list(plan.canvas_ids)
    for slot, labels, question in zip(plan.slots, plan.label_ids, questions, strict=True):
        canvas[slot] = labels[right_label(question, ticket)]
    return Sample(plan.prompt_ids, tuple(canvas), plan.slots)


def reply_sample(tokenizer: Tokenizer, ticket: Ticket, rng: random.Random) -> Sample:
    """One canvas of a reply; a long reply needs two, and either may be asked for."""
    long = rng.random() < 0.5
    book = BOOKS[ticket.language]
    ask = rng.choice(book.long_reply_asks if long else book.reply_asks)
    prompt = reply_prompt(tokenizer, ticket.text, ask)
    text = tokenizer.thought_ids + tokenizer.encode(reply(ticket, long))
    ids = (*text, tokenizer.end_of_turn_id)
    start = CANVAS * rng.randrange(-(-len(ids) // CANVAS))
    canvas = ids[start : start + CANVAS]
    padding = (tokenizer.pad_id,) * (CANVAS - len(canvas))
    return Sample(prompt + ids[:start], canvas + padding, ())


def reply_prompt(tokenizer: Tokenizer, state: str, ask: str) -> tuple[int, ...]:
    return tokenizer.render_chat([{"role": "user", "content": f"{state}\n\n{ask}"}])


def _department(rng: random.Random, easy: bool) -> dict[str, object]:
    names = DEPARTMENTS if easy else rng.sample(DEPARTMENTS, len(DEPARTMENTS))
    style = rng.choice((0, 0, 1, 2))
    return {"type": "choice", "criteria": {name: ABOUT[name][style] for name in names}}


def _again(rng: random.Random, _: bool) -> dict[str, object]:
    return {"type": "noul", "criteria": rng.choice(OUTCOMES)}


def _urgency(rng: random.Random, _: bool) -> dict[str, object]:
    return {"type": "score", "criteria": list(rng.choice(LEVEL_NAMES))}
