"""Trains the demo checkpoint from nothing but a seed: `python -m examples.tickets.train`."""

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import DiffusionGemmaForBlockDiffusion

from examples.tickets.evaluate import decide, summary
from examples.tickets.generator import tickets
from examples.tickets.geometry import new_model, save_model
from examples.tickets.heldout import heldout
from examples.tickets.objective import Batch, loss
from examples.tickets.tasks import Sample, random_questions, read_sample, reply_sample
from examples.tickets.vocabulary import save_tokenizer
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parent / "checkpoint"
REPLIES = 0.2
EASY = 0.25
WARM_UP = 100
CHECKED = 150


def samples(tokenizer: Tokenizer, seed: int, easy: int) -> Iterator[Sample]:
    """An endless stream of reads and replies on training tickets; none is seen twice.

    The first `easy` of them ask easy questions, which are quicker to learn and to compute.
    """
    rng = random.Random(seed)
    for number, ticket in enumerate(tickets(seed)):
        if rng.random() < REPLIES:
            yield reply_sample(tokenizer, ticket, rng)
        else:
            yield read_sample(tokenizer, ticket, random_questions(rng, number < easy))


def batches(stream: Iterator[Sample], size: int) -> Iterator[Batch]:
    """Batches of equal lengths, each given out as soon as its length has enough samples."""
    waiting: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in stream:
        group = waiting[len(sample.prompt_ids), len(sample.canvas_ids)]
        group.append(sample)
        if len(group) == size:
            yield _batch(group)
            group.clear()


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then cosine to a fiftieth of the peak."""
    warm = min(1.0, (step + 1) / WARM_UP)
    return peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def held_out(model: DiffusionGemmaForBlockDiffusion, tokenizer: Tokenizer) -> str:
    """Accuracy so far on some held-out tickets; changes no random state."""
    figures = summary(decide(model, tokenizer, heldout()[:CHECKED]))
    return ", ".join(f"{name} {values['accuracy']:.3f}" for name, values in figures.items())


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    save_tokenizer(arguments.output, arguments.seed)
    tokenizer = Tokenizer.load(arguments.output)
    model = new_model(tokenizer, arguments.seed)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98))
    easy = int(EASY * arguments.steps * arguments.batch)
    stream = batches(samples(tokenizer, arguments.seed, easy), arguments.batch)
    smooth = 0.0
    with tqdm(total=arguments.steps, unit="step", mininterval=5) as bar:
        for step, batch in zip(range(arguments.steps), stream, strict=False):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, arguments.steps, arguments.rate)
            value = loss(model, batch)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
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
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=250, help="steps, 0 for never")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
