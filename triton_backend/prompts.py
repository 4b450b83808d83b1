"""Prompts of messages that begin alike, encoding that part once; knows no questions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from triton_backend.tokenizer import Tokenizer

Ids = tuple[int, ...]


def render_all(tokenizer: Tokenizer, head: str, rests: Sequence[str]) -> list[Ids]:
    """The prompts of one user's messages, each the head and one of the rests.

    The first is encoded whole. If head and rest give its very tokens apart, then no token spans the
    place between them, and none does in the others: the rests begin with the same words, which
    must be longer than what the tokenizer joins. If they do not, every prompt is encoded whole.
    """
    first = _whole(tokenizer, head + rests[0])
    if len(rests) == 1:
        return [first]
    before, after = _frame(tokenizer)
    known = before + tokenizer.encode(head)
    if known + tokenizer.encode(rests[0]) + after != first:
        return [first, *(_whole(tokenizer, head + rest) for rest in rests[1:])]
    return [first, *(known + tokenizer.encode(rest) + after for rest in rests[1:])]


def shared_length(prompts: Sequence[Ids]) -> int:
    """How many ids all of them begin with alike."""
    # Of sequences in order, whatever begins the first and the last begins all of them.
    low, high = min(prompts), max(prompts)
    pairs = enumerate(zip(low, high, strict=False))
    return next((n for n, (one, other) in pairs if one != other), len(low))


def _whole(tokenizer: Tokenizer, message: str) -> Ids:
    return tokenizer.render_chat([{"role": "user", "content": message}])


@lru_cache(maxsize=8)
def _frame(tokenizer: Tokenizer) -> tuple[Ids, Ids]:
    """What the template puts before a user's message and after it, found by two short ones."""
    one, other = _whole(tokenizer, "a"), _whole(tokenizer, "b")
    before = shared_length((one, other))
    after = shared_length((one[before:][::-1], other[before:][::-1]))
    return one[:before], one[len(one) - after :]
