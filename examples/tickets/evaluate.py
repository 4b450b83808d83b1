"""Measures held-out reads with transformers alone: `python -m examples.tickets.evaluate`."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import DiffusionGemmaForBlockDiffusion

from examples.tickets.generator import Ticket
from examples.tickets.heldout import demo_questions, heldout
from examples.tickets.tasks import CANVAS, right_label
from triton_backend.questions import ReadPlan, build_read
from triton_backend.tokenizer import Tokenizer

BINS = 10


@dataclass(frozen=True)
class Decision:
    """What a read said about one question of one ticket."""

    question: str
    language: str
    probs: tuple[float, ...]
    right: int

    @property
    def chosen(self) -> int:
        return max(range(len(self.probs)), key=self.probs.__getitem__)


@torch.no_grad()
def read(model: DiffusionGemmaForBlockDiffusion, plan: ReadPlan) -> list[tuple[float, ...]]:
    """Probabilities over the labels of every slot, normalised over the labels."""
    logits = model(
        input_ids=torch.tensor([plan.prompt_ids]), decoder_input_ids=torch.tensor([plan.canvas_ids])
    ).logits[0]
    rows = zip(plan.slots, plan.label_ids, strict=True)
    return [tuple(logits[slot, list(labels)].softmax(-1).tolist()) for slot, labels in rows]


def decide(
    model: DiffusionGemmaForBlockDiffusion, tokenizer: Tokenizer, tickets: Iterable[Ticket]
) -> list[Decision]:
    """Reads every ticket with the three demo questions in one canvas."""
    questions = demo_questions()
    decisions = []
    for seed, ticket in enumerate(tickets):
        plan = build_read(tokenizer, ticket.text, questions, CANVAS, seed)
        for question, probs in zip(questions, read(model, plan), strict=True):
            right = right_label(question, ticket)
            decisions.append(Decision(question.id, ticket.language, probs, right))
    return decisions


def accuracy(decisions: Sequence[Decision]) -> float:
    return sum(d.chosen == d.right for d in decisions) / len(decisions)


def calibration_error(decisions: Sequence[Decision]) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over equal-width bins."""
    bins: list[list[Decision]] = [[] for _ in range(BINS)]
    for d in decisions:
        bins[min(int(d.probs[d.chosen] * BINS), BINS - 1)].append(d)
    gaps = (
        abs(sum(d.probs[d.chosen] - (d.chosen == d.right) for d in held)) for held in bins if held
    )
    return sum(gaps) / len(decisions)


def summary(decisions: Sequence[Decision]) -> dict[str, dict[str, float]]:
    """Accuracy (all, and per language) and calibration error per question."""
    result = {}
    for name in dict.fromkeys(d.question for d in decisions):
        mine = [d for d in decisions if d.question == name]
        figures = {"accuracy": accuracy(mine), "ece": calibration_error(mine)}
        for language in sorted({d.language for d in mine}):
            figures[f"accuracy_{language}"] = accuracy([d for d in mine if d.language == language])
        result[name] = {key: round(value, 4) for key, value in figures.items()}
    return result


def load_model(directory: Path) -> DiffusionGemmaForBlockDiffusion:
    """The checkpoint in fp32, as the parity bounds are stated."""
    return DiffusionGemmaForBlockDiffusion.from_pretrained(directory, dtype=torch.float32).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parent / "checkpoint")
    parser.add_argument("--limit", type=int, default=None, help="read only the first tickets")
    arguments = parser.parse_args()
    tickets = heldout()[: arguments.limit]
    decisions = decide(
        load_model(arguments.checkpoint), Tokenizer.load(arguments.checkpoint), tickets
    )
    for name, figures in summary(decisions).items():
        line = json.dumps({"question": name, "tickets": len(tickets), **figures})
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
