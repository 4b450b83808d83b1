"""Owns how tickets and their labels are drawn from the phrasebooks; must not know tokens or models.

A ticket holds one live issue, which decides the department; often a distractor that names another
department's things as settled, denied or past; one sentence that tells whether the customer will
write again; and one that tells how urgent it is. Held-out tickets use held-out phrasings only.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from examples.tickets import phrases_en, phrases_ko
from examples.tickets.phrasebook import DEPARTMENTS, LEVELS, Phrasebook

BOOKS = {"en": phrases_en.BOOK, "ko": phrases_ko.BOOK}


@dataclass(frozen=True)
class Ticket:
    """A message of a customer and what a reader should find in it."""

    text: str
    language: str
    department: str
    writes_again: bool
    urgency: int


def tickets(seed: int, heldout: bool = False) -> Iterator[Ticket]:
    """An endless stream; the same seed gives the same tickets."""
    rng = random.Random(seed)
    while True:
        yield draw(rng, heldout)


def draw(rng: random.Random, heldout: bool) -> Ticket:
    """One ticket with independent, uniformly drawn labels."""
    language = rng.choice(sorted(BOOKS))
    department = rng.choice(DEPARTMENTS)
    writes_again = rng.random() < 0.5
    urgency = rng.randrange(LEVELS)
    book = BOOKS[language]
    issue = [_issue(rng, book, department, heldout)]
    other = rng.choice([name for name in DEPARTMENTS if name != department])
    issue[rng.randrange(2) : 0] = _distractor(rng, book, other, heldout)
    signals = [
        rng.choice(book.again[writes_again].pick(heldout)),
        rng.choice(book.urgency[urgency].pick(heldout)),
    ]
    rng.shuffle(signals)
    cut = rng.choice((0, 0, 0, 1))
    sentences = [*_greeting(rng, book, heldout), *signals[:cut], *issue, *signals[cut:]]
    text = " ".join(_fill(rng, book, sentence) for sentence in sentences)
    return Ticket(text, language, department, writes_again, urgency)


def reply(ticket: Ticket, long: bool) -> str:
    """The answer the model learns to write; it follows from the labels alone."""
    book = BOOKS[ticket.language]
    text = book.reply.format(team=book.teams[ticket.department], when=book.whens[ticket.urgency])
    return text + (book.reply_endings[ticket.writes_again] if long else "")


def _greeting(rng: random.Random, book: Phrasebook, heldout: bool) -> list[str]:
    return [rng.choice(book.greetings.pick(heldout))] if rng.random() < 0.4 else []


def _issue(rng: random.Random, book: Phrasebook, department: str, heldout: bool) -> str:
    core = rng.choice(book.issues[department].pick(heldout))
    return rng.choice(book.issue_frames.pick(heldout)).replace("{core}", core)


def _distractor(rng: random.Random, book: Phrasebook, other: str, heldout: bool) -> list[str]:
    """Nothing, a denied topic, or a past issue, of another department."""
    kind = rng.random()
    if kind < 0.25:
        return []
    if kind < 0.65:
        topic = rng.choice(book.topics[other])
        return [rng.choice(book.topic_frames.pick(heldout)).replace("{topic}", topic)]
    core = rng.choice(book.issues[other].pick(heldout))
    return [rng.choice(book.past_frames.pick(heldout)).replace("{core}", core)]


def _fill(rng: random.Random, book: Phrasebook, sentence: str) -> str:
    words = {name: rng.choice(values) for name, values in book.words.items()}
    filled = sentence.format(**words)
    return filled[0].upper() + filled[1:]
