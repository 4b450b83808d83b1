"""Owns the committed held-out tickets and the demo questions; must not know tokens or models."""

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from examples.tickets.generator import Ticket, tickets
from triton_backend.questions import Question, parse_questions

FOLDER = Path(__file__).parent
COUNT = 600
SEED = 7_000_000


def demo_questions_json() -> str:
    """The three demo questions as a client sends them."""
    return (FOLDER / "questions.json").read_text(encoding="utf-8")


def demo_questions() -> tuple[Question, ...]:
    return parse_questions(demo_questions_json())


def heldout() -> list[Ticket]:
    """The committed tickets, whose phrasings are not in training."""
    lines = (FOLDER / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    return [Ticket(**json.loads(line)) for line in lines]


def write_heldout() -> None:
    """Draws the committed file anew; the result is always the same."""
    drawn = (json.dumps(asdict(t), ensure_ascii=False) for t in _draw(COUNT))
    (FOLDER / "heldout.jsonl").write_text("\n".join(drawn) + "\n", encoding="utf-8")


def _draw(count: int) -> list[Ticket]:
    return list(islice(tickets(SEED, heldout=True), count))


if __name__ == "__main__":
    write_heldout()
