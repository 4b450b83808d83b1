"""What is kept for calls that come again: nothing for the first, the last used beyond a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Kept = TypeVar("Kept")

_SIGHTINGS = 16


class Recurring(Generic[Kept]):
    """At most `most` kept things by key; a key is worth keeping when it is seen again.

    Of keys seen once, the latest `_SIGHTINGS` times `most` are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> Kept | None:
        """What is kept for the key, now the latest used."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def recurs(self, key: Hashable) -> bool:
        """Whether the key was seen before; it has been from now on."""
        before = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        while len(self._seen) > _SIGHTINGS * self._most:
            self._seen.popitem(last=False)
        return before

    def keep(self, key: Hashable, value: Kept) -> None:
        """Keeps the value, and drops the least recently used beyond the bound."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
