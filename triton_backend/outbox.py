"""The sender thread: delivers in order, so that the engine never waits for client or server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec

P = ParamSpec("P")
_log = logging.getLogger(__name__)


class Outbox:
    """Makes the calls that are posted on its own thread, in order of posting."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="outbox", daemon=True)
        self._thread.start()

    def post(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Returns at once; any thread may post until `close`."""
        self._queue.put(lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Delivers what was posted, then ends the thread."""
        self._queue.put(None)
        self._thread.join()

    def _deliver(self) -> None:
        while (delivery := self._queue.get()) is not None:
            try:
                delivery()
            except Exception:  # noqa: BLE001 - one client's trouble must not silence the others
                _log.exception("an answer could not be delivered")
