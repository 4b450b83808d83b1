"""Which KV pages are free and how many hold each of the others; owns no memory and no tensors."""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Pages 0 to `total` - 1, each free or held by one or more owners."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total
        self._held = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self._held

    def can_allocate(self, count: int) -> bool:
        """Whether `count` pages are free; changes nothing."""
        return count <= len(self._free)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Takes `count` free pages, each held once; ask `can_allocate` first."""
        assert self.can_allocate(count), f"{count} pages wanted, {len(self._free)} free"
        pages = tuple(self._free.pop() for _ in range(count))
        for page in pages:
            self._holders[page] = 1
        self._held += count
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Adds a holder to pages that are held already."""
        for page in pages:
            assert self._holders[page] > 0, f"page {page} is free, it cannot be shared"
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Takes a holder away; a page without any is free again."""
        for page in pages:
            assert self._holders[page] > 0, f"page {page} is released twice"
            self._holders[page] -= 1
            if not self._holders[page]:
                self._held -= 1
                self._free.append(page)

    def check_integrity(self) -> None:
        """Asserts that free and held pages add up to all of them; cheap enough for every pause."""
        assert len(self._free) + self._held == self.total, f"{self.total} pages, not {self!r}"

    def audit(self) -> None:
        """Asserts page by page that each is either free or held, and none is both."""
        self.check_integrity()
        assert sum(1 for holders in self._holders if holders > 0) == self._held
        assert len(set(self._free)) == len(self._free), "a page is free twice"
        assert all(self._holders[page] == 0 for page in self._free), "a free page is held"

    def __repr__(self) -> str:
        return f"PagePool({len(self._free)} free, {self._held} held)"


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that `tokens` positions fill."""
    return -(-tokens // page_size)
