"""The queue of requests without pages: by rank, and by tenant where tenants are treated alike."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from triton_backend.counters import Counters
from triton_backend.progress import Progress

_FOR_EVER = float("inf")
_MOST_TENANTS = 4096


class WaitingQueue:
    """Requests that do not run, new and preempted; counts and times how long they lacked pages."""

    def __init__(self, counters: Counters, fair: bool) -> None:
        self._counters = counters
        self._fair = fair
        self._entries: list[Progress] = []
        self._short_since: dict[int, float] = {}
        self._served: dict[str, int] = {}
        self._turn = 0  # rows that the tenant whose request started last had been served

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_preempted(self) -> int:
        return sum(1 for entry in self._entries if entry.preemptions)

    def __iter__(self) -> Iterator[Progress]:
        """In the order in which they should start; a copy, so that some may leave meanwhile."""
        if not self._fair:
            return iter(tuple(self._entries))
        return iter(sorted(self._entries, key=self._fair_rank))

    def add(self, progress: Progress) -> None:
        """Takes a request in; one that waits already keeps its place."""
        self._lift(progress.request.tenant)
        insort(self._entries, progress)

    def hold_back(self, progress: Progress, now: float) -> None:
        """A request could run but for its pages: one wait, however many steps it lasts."""
        if progress.request.key not in self._short_since:
            self._short_since[progress.request.key] = now
            self._counters.kv_waits += 1

    def start(self, progress: Progress, now: float) -> None:
        """Takes a request out to run: it was its tenant's turn."""
        self._turn = max(self._turn, self._served.get(progress.request.tenant, 0))
        self.take(progress, now)

    def take(self, progress: Progress, now: float) -> None:
        """Takes a request out, to run or because it is dropped."""
        self._entries.remove(progress)
        since = self._short_since.pop(progress.request.key, None)
        if since is not None:
            self._counters.kv_wait_seconds += now - since
            progress.timing.kv_wait += now - since

    def find(self, key: int) -> Progress | None:
        return next((entry for entry in self._entries if entry.request.key == key), None)

    def overdue(self, now: float, patience: float) -> list[Progress]:
        """Requests that never ran and have waited for longer than they, or the server, allow."""
        return [
            entry
            for entry in self._entries
            if entry.started is None
            and now - entry.arrived > (entry.request.queue_timeout or patience or _FOR_EVER)
        ]

    def serve(self, tenant: str, tokens: int) -> None:
        """Rows of a tenant have been computed."""
        if self._fair:
            self._served[tenant] = self._served.get(tenant, 0) + tokens

    def _fair_rank(self, progress: Progress) -> tuple[int, tuple[float, int]]:
        return self._served.get(progress.request.tenant, 0), progress.rank

    def _lift(self, tenant: str) -> None:
        """Who comes back after a pause has no claim on what others got meanwhile."""
        if self._fair and all(entry.request.tenant != tenant for entry in self._entries):
            waiting = {entry.request.tenant for entry in self._entries}
            least = min((self._served.get(name, 0) for name in waiting), default=self._turn)
            self._served[tenant] = max(self._served.get(tenant, 0), least)
            if len(self._served) > _MOST_TENANTS:
                self._served = {name: self._served[name] for name in (*waiting, tenant)}
