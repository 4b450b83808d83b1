"""Pages that running requests have yet to take, kept up to date while one step is made."""

from __future__ import annotations

from collections.abc import Iterable

from triton_backend.kv_cache import KvCache, Need
from triton_backend.needs import claim
from triton_backend.progress import Progress

_NOTHING = Need(0, 0)


class Claims:
    """One claim a request and their sum, so that starting many requests does not ask all of those
    that run each time."""

    def __init__(self, kv: KvCache, budget: int) -> None:
        self._kv, self._budget = kv, budget
        self._each: dict[int, Need] | None = None
        self.total = _NOTHING

    def forget(self) -> None:
        """A new step begins: what was known is out of date."""
        self._each, self.total = None, _NOTHING

    def ask(self, members: Iterable[Progress]) -> None:
        """Takes in all running requests, once a step."""
        if self._each is None:
            self._each = {}
            for progress in members:
                self.put(progress)

    def of(self, progress: Progress) -> Need:
        """A request's claim as it is now, with or without being counted."""
        return claim(progress, self._kv, self._budget)

    def put(self, progress: Progress) -> None:
        """Counts a request's claim, or counts it anew."""
        if self._each is not None:
            self.drop(progress)
            self._each[progress.request.key] = own = self.of(progress)
            self.total = self.total.more(own)

    def drop(self, progress: Progress) -> None:
        """Counts a request's claim no longer."""
        if self._each is not None:
            self.total = self.total.less(self._each.pop(progress.request.key, _NOTHING))
