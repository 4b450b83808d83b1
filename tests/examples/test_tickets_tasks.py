"""What the demo model is trained on: right answers in the server's own prompts and canvases."""

import random
from itertools import islice
from pathlib import Path

import pytest

from examples.tickets.generator import BOOKS, reply, tickets
from examples.tickets.tasks import (
    CANVAS,
    random_questions,
    read_sample,
    reply_prompt,
    reply_sample,
    right_label,
)
from triton_backend.questions import build_read
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(CHECKPOINT)


def test_a_read_sample_is_the_servers_read_with_right_labels_in_its_slots(tokenizer):
    rng = random.Random(1)
    for ticket in islice(tickets(1), 100):
        questions = random_questions(rng)
        sample = read_sample(tokenizer, ticket, questions)
        plan = build_read(tokenizer, ticket.text, questions, CANVAS, seed=9)
        assert sample.prompt_ids == plan.prompt_ids
        assert sample.slots == plan.slots
        for slot, labels, question in zip(plan.slots, plan.label_ids, questions, strict=True):
            assert sample.canvas_ids[slot] == labels[right_label(question, ticket)]
        rest = set(range(len(plan.canvas_ids))) - set(plan.slots)
        assert all(sample.canvas_ids[i] == plan.canvas_ids[i] for i in rest)


def test_the_letter_of_a_department_varies_so_it_must_be_read_from_the_prompt():
    rng = random.Random(2)
    asked = [q for _ in range(200) for q in random_questions(rng) if q.id == "department"]
    letters = {o.label for q in asked for o in q.options if o.name == "billing"}
    assert letters == set("ABCD")


def test_easy_questions_are_asked_alone_and_keep_their_order():
    rng = random.Random(3)
    for _ in range(50):
        (question,) = random_questions(rng, easy=True)
        if question.id == "department":
            assert question.options[0].name == "billing"


def test_the_canvases_of_a_reply_join_to_the_reply(tokenizer):
    ticket = next(tickets(4))
    book = BOOKS[ticket.language]
    prompts = [reply_prompt(tokenizer, ticket.text, a) for a in book.long_reply_asks]
    found = set()
    for seed in range(40):
        sample = reply_sample(tokenizer, ticket, random.Random(seed))
        prompt = next((p for p in prompts if sample.prompt_ids[: len(p)] == p), None)
        if prompt is None:
            continue
        written = sample.prompt_ids[len(prompt) :] + sample.canvas_ids
        assert len(sample.canvas_ids) == CANVAS
        found.add(len(written))
        if tokenizer.end_of_turn_id in sample.canvas_ids:
            end = written.index(tokenizer.end_of_turn_id)
            text = tokenizer.decode(written[len(tokenizer.thought_ids) : end])
            assert text == reply(ticket, long=True)
            assert set(written[end + 1 :]) <= {tokenizer.pad_id}
    assert found


def test_the_demo_read_fits_a_short_prompt(tokenizer):
    rng = random.Random(5)
    for ticket in islice(tickets(5, heldout=True), 300):
        sample = read_sample(tokenizer, ticket, random_questions(rng))
        assert len(sample.prompt_ids) < 320
