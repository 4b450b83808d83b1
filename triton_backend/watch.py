"""Notices clients that have gone: asks each live one now and then, and cancels its request."""

from __future__ import annotations

import threading

from triton_backend.loop import EngineLoop

WATCH_SECONDS = 0.1


class Watch:
    """A thread that polls; requests answered within one interval are never asked about."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        seen: set[int] = set()
        while not self._ended.wait(WATCH_SECONDS):
            live = self._loop.live()
            for key, client in live:
                if key in seen and client.is_cancelled():
                    self._loop.cancel(key)
            seen = {key for key, _ in live}
