"""The committed weights: transformers loads them, they read unseen tickets and write replies."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from examples.tickets.evaluate import decide, load_model, summary
from examples.tickets.generator import BOOKS, reply, tickets
from examples.tickets.geometry import DECODER_SCALAR, ENCODER_SCALAR
from examples.tickets.heldout import heldout
from examples.tickets.tasks import CANVAS, reply_prompt
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(CHECKPOINT)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return load_model(CHECKPOINT)


def test_it_is_small_and_keeps_both_phases_scalars(model, tokenizer):
    assert (CHECKPOINT / "model.safetensors").stat().st_size < 8 << 20
    assert model.config.text_config.vocab_size == tokenizer.vocab_size
    assert model.model.decoder.layers[0].layer_scalar.item() == DECODER_SCALAR
    assert model.model.encoder.language_model.layers[0].layer_scalar.item() == ENCODER_SCALAR


def test_it_stops_at_the_end_of_a_turn(model, tokenizer):
    assert tokenizer.end_of_turn_id in model.generation_config.eos_token_id


def test_it_reads_unseen_tickets(model, tokenizer):
    figures = summary(decide(model, tokenizer, heldout()[:100]))
    assert figures["department"]["accuracy"] >= 0.93
    assert figures["again"]["accuracy"] >= 0.93
    assert figures["urgency"]["accuracy"] >= 0.93


def test_it_writes_replies_by_block_diffusion(model, tokenizer):
    exact = 0
    for ticket in islice(tickets(11), 6):
        ask = BOOKS[ticket.language].reply_asks[0]
        prompt = reply_prompt(tokenizer, ticket.text, ask)
        written = model.generate(torch.tensor([prompt]), max_new_tokens=CANVAS)
        ids = written.sequences[0, len(prompt) :].tolist()
        exact += reply(ticket, long=False) in tokenizer.decode(ids)
    assert exact >= 4
