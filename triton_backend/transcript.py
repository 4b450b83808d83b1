"""Turns a generation's token ids into text, piece by piece, and ends it where it must end.

Whatever the pieces, joined they are the text of all ids decoded at once: a piece never splits a
character, nor shows part of what may yet become a stop word. Knows no canvas and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_BROKEN = "\ufffd"  # how an unfinished character decodes
_LONGEST = 4  # tokens of a character


class Decode(Protocol):
    """Text of ids; with `more` of them to come, only what no id behind them changes."""

    def __call__(self, ids: Sequence[int], more: bool = False) -> str: ...


class Transcript:
    """The text so far; `extend` until `ended`, then `close`."""

    def __init__(self, decode: Decode, stop_words: tuple[str, ...] = ()) -> None:
        self._decode = decode
        self._stop_words = stop_words
        self._ids: list[int] = []
        self._shown = ""
        self.ended = False

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(self._ids)

    @property
    def text(self) -> str:
        """All text handed out so far."""
        return self._shown

    def extend(self, ids: Sequence[int]) -> str:
        """Takes tokens in and gives the text that is certain now.

        It ends before the first stop word to be complete, the tokens with the one completing it.
        """
        before = len(self._ids)
        self._ids += ids
        if not self._stops(len(self._ids)):
            return self._show(_certain(self._decode(self._ids, more=True), self._stop_words))
        self.ended = True
        del self._ids[self._completing(before) :]
        text = self._decode(self._ids)
        return self._show(text[: min(self._found(text))])

    def close(self) -> str:
        """The rest of the text, when nothing more will come."""
        return "" if self.ended else self._show(self._decode(self._ids))

    def _found(self, text: str) -> list[int]:
        """Where the stop words that are in a text begin."""
        return [at for word in self._stop_words if (at := text.find(word)) >= 0]

    def _stops(self, count: int) -> bool:
        """Whether a stop word is in the text of the first `count` tokens."""
        return bool(self._stop_words and self._found(self._whole(count)))

    def _whole(self, count: int) -> str:
        """Text of the first `count` tokens without an unfinished character, which hides others."""
        for end in range(count, max(count - _LONGEST, -1), -1):
            text = self._decode(self._ids[:end])
            if not text.endswith(_BROKEN):
                return text
        return self._decode(self._ids[:count])

    def _completing(self, before: int) -> int:
        """How many tokens it takes until a stop word is there; the new ones are tried by halves."""
        low, high = before, len(self._ids)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._stops(middle) else (middle, high)
        return high

    def _show(self, text: str) -> str:
        # What was shown stays: only text that later tokens cannot change is ever shown.
        new = text[len(self._shown) :]
        self._shown += new
        return new


def _certain(text: str, stop_words: tuple[str, ...]) -> str:
    """The part of a text that no further token changes or turns into a stop word."""
    text = text.rstrip(_BROKEN)
    held = max((_overlap(text, word) for word in stop_words), default=0)
    return text[: len(text) - held]


def _overlap(text: str, word: str) -> int:
    """Length of the longest end of `text` that `word` begins with."""
    start = text.find(word[0], max(0, len(text) - len(word)))
    while start >= 0 and not word.startswith(text[start:]):
        start = text.find(word[0], start + 1)
    return len(text) - start if start >= 0 else 0
