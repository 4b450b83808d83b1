"""Turns a generation's token ids into text, piece by piece, and ends it where it must end.

Whatever the pieces, joined they are the text of all ids decoded at once: a piece never splits a
character, nor shows part of what may yet become a stop word. Knows no canvas and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_BROKEN = "\ufffd"  # how an unfinished character decodes


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

        At a stop word the text ends before it, and the tokens with the one that completes it.
        """
        before = len(self._ids)
        self._ids += ids
        text = self._decode(self._ids)
        found = self._find(text)
        if found is None:
            return self._show(_certain(text, self._stop_words))
        self.ended = True
        del self._ids[self._completing(before) :]
        return self._show(text[:found])

    def close(self) -> str:
        """The rest of the text, when nothing more will come."""
        return "" if self.ended else self._show(self._decode(self._ids))

    def _find(self, text: str) -> int | None:
        """Where the earliest stop word begins."""
        found = [at for word in self._stop_words if (at := text.find(word)) >= 0]
        return min(found, default=None)

    def _completing(self, before: int) -> int:
        """How many tokens it takes until a stop word is there; the new ones are tried by halves."""
        low, high = before, len(self._ids)
        while low + 1 < high:
            middle = (low + high) // 2
            if self._find(self._decode(self._ids[:middle])) is None:
                low = middle
            else:
                high = middle
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
    return next((n for n in range(min(len(text), len(word)), 0, -1) if text.endswith(word[:n])), 0)
