"""Trains the demo checkpoint from nothing but a seed: `python -m examples.tickets.train`."""

import argparse
import math
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import DiffusionGemmaForBlockDiffusion

from examples.tickets.evaluate import decide, load_model, summary
from examples.tickets.generator import Ticket, tickets
from examples.tickets.geometry import new_model, save_model
from examples.tickets.heldout import demo_questions, heldout
from examples.tickets.objective import Batch, first_loss, full_loss
from examples.tickets.tasks import Sample, random_questions, read_sample, reply_sample
from examples.tickets.vocabulary import save_tokenizer
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parent / "checkpoint"
EASY_SHARE = 0.32
REPLIES, DEMO_READS, EASY_READS = 0.30, 0.35, 0.15
WARM_UP = 100
CHECKED = 150


class Curriculum:
    """An endless stream of samples on training tickets, none seen twice; first the easy ones.

    Single questions with their options in order come first, since they are quicker to learn and
    to compute; then the demo questions, single ones, replies, and questions of every kind.
    """

    def __init__(self, tokenizer: Tokenizer, rng: random.Random) -> None:
        self.tokenizer, self.rng = tokenizer, rng
        self.easy = True
        self._demo = demo_questions()

    def samples(self, seed: int) -> Iterator[Sample]:
        """Samples of the stage that `easy` says, ticket after ticket."""
        for ticket in tickets(seed):
            yield self._easy(ticket) if self.easy else self._any(ticket)

    def _easy(self, ticket: Ticket) -> Sample:
        return read_sample(self.tokenizer, ticket, random_questions(self.rng, easy=True))

    def _any(self, ticket: Ticket) -> Sample:
        draw = self.rng.random()
        if draw < REPLIES:
            return reply_sample(self.tokenizer, ticket, self.rng)
        if draw < REPLIES + DEMO_READS:
            return read_sample(self.tokenizer, ticket, self._demo)
        if draw < REPLIES + DEMO_READS + EASY_READS:
            return self._easy(ticket)
        return read_sample(self.tokenizer, ticket, random_questions(self.rng))


def batches(stream: Iterator[Sample], size: int) -> Iterator[Batch]:
    """Batches of equal lengths, each given out as soon as its length has enough samples."""
    waiting: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in stream:
        group = waiting[len(sample.prompt_ids), len(sample.canvas_ids)]
        group.append(sample)
        if len(group) == size:
            yield _batch(group)
            group.clear()


def learning_rate(step: int, easy_steps: int, steps: int, peak: float) -> float:
    """Linear warm-up, down to half the peak over the easy stage, then by a cosine to a fiftieth."""
    warm = peak * min(1.0, (step + 1) / WARM_UP)
    if step < easy_steps:
        return warm * (1 - 0.5 * step / easy_steps)
    done = (step - easy_steps) / (steps - easy_steps)
    return warm * (0.02 + 0.48 * 0.5 * (1 + math.cos(math.pi * done)))


def held_out(model: DiffusionGemmaForBlockDiffusion, tokenizer: Tokenizer) -> str:
    """Accuracy so far on some held-out tickets; changes no random state."""
    figures = summary(decide(model, tokenizer, heldout()[:CHECKED]))
    return ", ".join(f"{name} {values['accuracy']:.3f}" for name, values in figures.items())


def _start(
    arguments: argparse.Namespace,
) -> tuple[Tokenizer, DiffusionGemmaForBlockDiffusion]:
    """New weights and tokenizer, or those of the checkpoint to go on from."""
    if arguments.resume is None:
        save_tokenizer(arguments.output, arguments.seed)
        tokenizer = Tokenizer.load(arguments.output)
        return tokenizer, new_model(tokenizer, arguments.seed)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if not arguments.output.samefile(arguments.resume):
            shutil.copyfile(arguments.resume / name, arguments.output / name)
    torch.manual_seed(arguments.seed)
    model = load_model(arguments.resume)
    model.set_experts_implementation("grouped_mm")
    return Tokenizer.load(arguments.output), model


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    tokenizer, model = _start(arguments)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98))
    curriculum = Curriculum(tokenizer, random.Random(arguments.seed))
    easy_steps = round(arguments.easy_share * arguments.steps)
    curriculum.easy = easy_steps > 0
    stream = batches(curriculum.samples(arguments.seed), arguments.batch)
    smooth = 0.0
    with tqdm(total=arguments.steps, unit="step", mininterval=5) as bar:
        for step, batch in zip(range(arguments.steps), stream, strict=False):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, easy_steps, arguments.steps, arguments.rate)
            early = step < easy_steps
            value = first_loss(model, batch) if early else full_loss(model, batch, curriculum.rng)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            curriculum.easy = step + 1 < easy_steps
            smooth = value.item() if not smooth else 0.98 * smooth + 0.02 * value.item()
            bar.set_postfix(loss=f"{smooth:.3f}", refresh=False)
            bar.update()
            if arguments.check_every and (step + 1) % arguments.check_every == 0:
                bar.write(f"step {step + 1}: loss {smooth:.3f}, {held_out(model, tokenizer)}")
                save_model(model, tokenizer, arguments.output)
    save_model(model, tokenizer, arguments.output)


def _batch(group: list[Sample]) -> Batch:
    slots = torch.zeros(len(group), len(group[0].canvas_ids), dtype=torch.bool)
    for row, sample in enumerate(group):
        slots[row, list(sample.slots)] = True
    return Batch(
        torch.tensor([sample.prompt_ids for sample in group]),
        torch.tensor([sample.canvas_ids for sample in group]),
        slots,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=CHECKPOINT)
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--easy-share", type=float, default=EASY_SHARE)
    parser.add_argument("--check-every", type=int, default=250, help="steps, 0 for never")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
