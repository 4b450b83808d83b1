"""Which KV pages are free, held or only cached; owns no memory and no tensors.

A page that nobody holds but the prefix cache is idle: still worth something, and the first to go
when a page is wanted, the least recently used before the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping


class PagePool:
    """Pages 0 to `total` - 1, each free, held by one or more owners, or idle."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total
        self._cached = bytearray(total)
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_idle(self) -> int:
        """Pages that the cache alone holds."""
        return len(self._idle)

    @property
    def num_used(self) -> int:
        """Pages with an owner besides the cache."""
        return self.total - len(self._free) - len(self._idle)

    @property
    def num_available(self) -> int:
        """Pages to be had, once the cache gives its idle ones away."""
        return len(self._free) + len(self._idle)

    def can_allocate(self, count: int) -> bool:
        """Whether `count` pages are free; changes nothing."""
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Takes `count` free pages, each held once; ask `can_allocate` first."""
        assert self.can_allocate(count), f"{count} pages wanted, {len(self._free)} free"
        if not count:
            return []
        pages = self._free[: -count - 1 : -1]
        del self._free[-count:]
        for page in pages:
            self._holders[page] = 1
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Adds a holder to pages that are held or cached already."""
        for page in pages:
            known = self._holders[page] or self._cached[page]
            assert known, f"page {page} is free, it cannot be shared"
            self._holders[page] += 1
            if self._holders[page] == 1:
                del self._idle[page]

    def release(self, pages: Iterable[int]) -> None:
        """Takes a holder away; a page without any is idle if it is cached, else free."""
        for page in pages:
            assert self._holders[page] > 0, f"page {page} is released twice"
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if self._cached[page]:
                self._idle[page] = None
            else:
                self._free.append(page)

    def cache(self, page: int) -> None:
        """The cache keeps a held page from now on."""
        assert self._holders[page] and not self._cached[page], f"page {page} cannot be cached"
        self._cached[page] = True

    def forget(self, page: int) -> None:
        """The cache keeps a page no longer."""
        assert self._cached[page], f"page {page} is not cached"
        self._cached[page] = False
        if not self._holders[page]:
            del self._idle[page]
            self._free.append(page)

    def oldest_idle(self) -> int:
        """The idle page that has been of no use for longest; only while there is one."""
        return next(iter(self._idle))

    def num_freed(self, releases: Mapping[int, int]) -> int:
        """Pages that so many releases of each would leave without a holder; changes nothing."""
        return sum(self._holders[page] == count for page, count in releases.items())

    def check_integrity(self) -> None:
        """Asserts that free, idle and held pages add up to all of them; cheap enough for pauses."""
        held = sum(1 for holders in self._holders if holders)
        assert held == self.num_used, f"{held} of {self.total} pages are held, not {self!r}"

    def audit(self) -> None:
        """Asserts page by page that each is in exactly one state."""
        self.check_integrity()
        assert len(set(self._free)) == len(self._free), "a page is free twice"
        for page in self._free:
            assert not self._holders[page], f"page {page} is free and held"
            assert not self._cached[page], f"page {page} is free and cached"
        for page in self._idle:
            assert not self._holders[page], f"page {page} is idle and held"
            assert self._cached[page], f"page {page} is idle, but not cached"

    def __repr__(self) -> str:
        return f"PagePool({self.num_free} free, {self.num_idle} idle, {self.num_used} held)"


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that `tokens` positions fill."""
    return -(-tokens // page_size)
