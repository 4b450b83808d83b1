"""The requests that hold pages, by rank; knows no policy."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator

from triton_backend.progress import Progress


class Running:
    """Requests from the best rank to the worst, and by key."""

    def __init__(self) -> None:
        self._ordered: list[Progress] = []
        self._by_key: dict[int, Progress] = {}

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Progress]:
        """By rank; a copy, so that some may be preempted meanwhile."""
        return iter(tuple(self._ordered))

    def __getitem__(self, key: int) -> Progress:
        return self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def add(self, progress: Progress) -> None:
        insort(self._ordered, progress)
        self._by_key[progress.request.key] = progress

    def remove(self, progress: Progress) -> None:
        self._ordered.remove(progress)
        del self._by_key[progress.request.key]

    def worst(self, behind: Progress, spared: Collection[int]) -> Progress | None:
        """The worst rank of all behind a request, but for spared keys."""
        for progress in reversed(self._ordered):
            if not behind < progress:
                return None
            if progress.request.key not in spared:
                return progress
        return None
