"""Prompts that begin alike are those that each would be alone, token for token."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_backend.prompts import render_all, shared_length
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"
TOKENIZER = Tokenizer.load(CHECKPOINT)
TEXTS = st.text(max_size=60) | st.sampled_from(["\n", "Q", "Question 1: ", " ", "<turn|>", "가나"])


def whole(tokenizer, head, rest):
    return tokenizer.render_chat([{"role": "user", "content": head + rest}])


@settings(max_examples=300, deadline=None)
@given(TEXTS.filter(lambda text: text.strip()), st.lists(TEXTS, min_size=1, max_size=6))
def test_every_prompt_is_the_one_that_is_encoded_whole(state, asked):
    head = f"{state.strip()}\n\n"
    rests = [f"Question 1: {text}\nReply." for text in asked]
    expected = [whole(TOKENIZER, head, rest) for rest in rests]
    assert render_all(TOKENIZER, head, rests) == expected


class Counting(Tokenizer):
    """Counts the characters that it encodes; `joined` makes a token of what no other has."""

    joined = ""
    characters = 0

    def encode(self, text):
        self.characters += len(text)
        ids = super().encode(text)
        if self.joined and self.joined in text:
            place = text.index(self.joined)
            rest = text[place + len(self.joined) :]
            return (*super().encode(text[:place]), 9, *super().encode(rest))
        return ids


def test_the_head_is_encoded_twice_however_many_follow_it():
    tokenizer = Counting.load(CHECKPOINT)
    head = "word " * 200 + "\n\n"
    render_all(tokenizer, head, ["Question 1: a"])
    once = tokenizer.characters
    render_all(tokenizer, head, [f"Question 1: {n}" for n in range(50)])
    assert once < tokenizer.characters < once + 2 * len(head) + 50 * 30


def test_where_a_token_spans_the_place_between_every_prompt_is_encoded_whole():
    tokenizer = Counting.load(CHECKPOINT)
    tokenizer.joined = "\nQ"
    rests = [f"Question 1: {n}" for n in range(3)]
    found = render_all(tokenizer, "A state.\n\n", rests)
    assert found == [whole(tokenizer, "A state.\n\n", rest) for rest in rests]
    assert all(9 in prompt for prompt in found)


@pytest.mark.parametrize(
    ("prompts", "length"),
    [
        ([(1, 2, 3)], 3), ([(1, 2), (1, 2)], 2), ([(1, 2, 3), (1, 2), (1, 2, 9)], 2),
        ([(5, 1), (5, 2), (4, 1)], 0), ([(), (1,)], 0),
    ],
)  # fmt: skip
def test_what_all_begin_with_is_counted(prompts, length):
    assert shared_length(prompts) == length
