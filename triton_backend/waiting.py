"""The queue of requests without pages: first come, first served, its head waits for pages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from triton_backend.core import Request
from triton_backend.counters import Counters


@dataclass
class _Entry:
    request: Request
    arrived: float
    short_since: float | None = None  # when it was first held back for want of pages


class WaitingQueue:
    """Requests in order of arrival; counts and times how long their head lacked pages."""

    def __init__(self, counters: Counters) -> None:
        self._entries: deque[_Entry] = deque()
        self._counters = counters

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> Request:
        return self._entries[0].request

    def add(self, request: Request, now: float) -> None:
        self._entries.append(_Entry(request, now))

    def hold_back(self, now: float) -> None:
        """The head could run but for its pages: one wait, however many steps it lasts."""
        entry = self._entries[0]
        if entry.short_since is None:
            entry.short_since = now
            self._counters.kv_waits += 1

    def pop(self, now: float) -> tuple[Request, float]:
        """The head and its time of arrival."""
        entry = self._entries.popleft()
        self._end_wait(entry, now)
        return entry.request, entry.arrived

    def remove(self, key: int, now: float) -> Request | None:
        """Takes a request out wherever it stands."""
        for entry in self._entries:
            if entry.request.key == key:
                self._entries.remove(entry)
                self._end_wait(entry, now)
                return entry.request
        return None

    def _end_wait(self, entry: _Entry, now: float) -> None:
        if entry.short_since is not None:
            self._counters.kv_wait_seconds += now - entry.short_since
