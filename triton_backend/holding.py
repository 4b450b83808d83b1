"""Keeps objects alive for a while after their use; knows nothing of what they are.

For objects that another thread may drop a last reference to without Python's lock: whoever holds
them a little longer makes sure that it is not the last.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable


class Holding:
    """Objects in order of arrival, each let go once it has been held for `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._held: deque[tuple[float, object]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, thing: object) -> None:
        """Takes a thing in, and lets go of those that have been here long enough."""
        now = self._clock()
        released: list[object] = []
        with self._lock:
            self._held.append((now, thing))
            while self._held[0][0] + self._seconds <= now:
                released.append(self._held.popleft())
        # Their destructors run here, outside the lock.
        released.clear()

    def release(self) -> None:
        """Lets go of everything."""
        with self._lock:
            released = list(self._held)
            self._held.clear()
        released.clear()
