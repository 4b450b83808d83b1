"""The KV cache of all requests: two groups of pages, shared prefixes, scratch pages of canvases.

Sliding layers look back `window` - 1 positions, so their group keeps only the pages that a later
row may still see; full layers keep all. Owns page numbers, not memory; knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from plugins.spec import NO_PAGE
from triton_backend.page_pool import PagePool, pages_for
from triton_backend.prefix_cache import Node, PrefixCache

Ids = tuple[int, ...]


@dataclass(frozen=True)
class KvShape:
    """Sizes that the pools were made with; `window` in positions, 0 without sliding layers."""

    page_size: int
    window: int
    full_pages: int
    sliding_pages: int

    @property
    def behind(self) -> int:
        """Positions before a row that it sees in sliding layers."""
        return max(self.window - 1, 0)


class Need(NamedTuple):
    """Pages of each group."""

    full: int
    sliding: int

    def more(self, other: Need) -> Need:
        """Both together."""
        return Need(self.full + other.full, self.sliding + other.sliding)

    def less(self, other: Need) -> Need:
        """What is left of it without another one."""
        return Need(self.full - other.full, self.sliding - other.sliding)


class Pages(NamedTuple):
    """A segment's rows of both block tables; NO_PAGE where the sliding group holds none."""

    full: tuple[int, ...]
    sliding: tuple[int, ...]

    def __add__(self, other: object) -> Pages:
        assert isinstance(other, Pages)
        return Pages(self.full + other.full, self.sliding + other.sliding)


NOTHING = Pages((), ())


@dataclass
class Sequence:
    """The pages of one context: `computed` of its positions are written.

    `sliding` is as long as `full`; before `first` it holds none. The first `shared` pages are the
    prefix cache's too, the last of them `node`'s; a private one never shares more.
    """

    salt: str
    computed: int = 0
    full: list[int] = field(default_factory=list)
    sliding: list[int] = field(default_factory=list)
    first: int = 0
    shared: int = 0
    node: Node | None = None
    private: bool = False
    _pages: Pages | None = None

    @property
    def pages(self) -> Pages:
        """Both table rows as they are now."""
        if self._pages is None:
            self._pages = Pages(tuple(self.full), tuple(self.sliding))
        return self._pages

    def changed(self) -> None:
        """Its pages are others than before."""
        self._pages = None


class KvCache:
    """Gives pages to sequences and canvases, the cache's idle ones too, and takes them back."""

    def __init__(self, shape: KvShape, reuse: bool = True) -> None:
        self.shape = shape
        self.full = PagePool(shape.full_pages)
        self.sliding = PagePool(shape.sliding_pages)
        self.prefixes = PrefixCache(self.full, self.sliding, shape.page_size, shape.window)
        self._reuse = reuse

    @property
    def available(self) -> Need:
        """Pages of each group that are free or idle."""
        return Need(self.full.num_available, self.sliding.num_available)

    def known(self, ids: Ids, salt: str) -> int:
        """Positions of a prompt that a sequence opened now would not have to compute."""
        return len(self._path(ids, salt)) * self.shape.page_size

    def _path(self, ids: Ids, salt: str) -> list[Node]:
        return self.prefixes.match(ids, salt) if self._reuse else []

    def open(self, ids: Ids, salt: str) -> Sequence:
        """A sequence that holds what is known of a prompt already: `computed` of its positions."""
        sequence = Sequence(salt)
        path = self._path(ids, salt)
        if path:
            window = self.prefixes.window_of(path)
            seen = [node.sliding for node in window if node.sliding is not None]
            sequence.full = [node.full for node in path]
            sequence.first = len(path) - len(seen)
            sequence.sliding = [NO_PAGE] * sequence.first + seen
            sequence.computed = len(path) * self.shape.page_size
            sequence.shared, sequence.node = len(path), path[-1]
            self.full.retain(sequence.full)
            self.sliding.retain(seen)
        return sequence

    def branch(self, parent: Sequence, tokens: int) -> Sequence:
        """A sequence over the whole pages of another's first `tokens` positions, written or not."""
        size = self.shape.page_size
        shared = tokens // size
        first = min(max(shared * size - self.shape.behind, 0) // size, shared)
        assert first >= parent.first, "a page that a branch would see is given away"
        sequence = Sequence(parent.salt, shared * size, parent.full[:shared], private=True)
        sequence.first = first
        sequence.sliding = [NO_PAGE] * first + parent.sliding[first:shared]
        self.full.retain(sequence.full)
        self.sliding.retain(sequence.sliding[first:])
        return sequence

    def needs(self, sequence: Sequence, tokens: int) -> Need:
        """Pages that a sequence lacks for `tokens` positions behind the computed ones."""
        more = pages_for(sequence.computed + tokens, self.shape.page_size) - len(sequence.full)
        return Need(max(more, 0), max(more, 0))

    def room(self, sequence: Sequence) -> int:
        """Positions behind the computed ones that could be written with what is available."""
        pages = len(sequence.full) + min(self.available)
        return pages * self.shape.page_size - sequence.computed

    def can(self, need: Need) -> bool:
        """Whether so many pages are to be had; changes nothing."""
        return need.full <= self.full.num_available and need.sliding <= self.sliding.num_available

    def extend(self, sequence: Sequence, tokens: int) -> None:
        """Gives a sequence the pages for `tokens` more positions; ask `can` first."""
        need = self.needs(sequence, tokens)
        if need.full:
            pages = self._take(need)
            sequence.full += pages.full
            sequence.sliding += pages.sliding
            sequence.changed()

    def scratch(self, tokens: int) -> Pages:
        """Pages for a canvas, from its own first one on; ask `can` first, and `drop` them after."""
        count = pages_for(tokens, self.shape.page_size)
        return self._take(Need(count, count))

    def drop(self, pages: Pages) -> None:
        """Takes a canvas's scratch pages back."""
        self.full.release(pages.full)
        self.sliding.release(pages.sliding)

    def advance(self, sequence: Sequence, ids: Ids, tokens: int) -> None:
        """`tokens` more positions of a sequence are written; `ids` are those of all of it, of
        no use to a private one.

        Its whole pages become known to the prefix cache, those of the sliding layers that no
        later row sees are let go.
        """
        sequence.computed += tokens
        if self._reuse and not sequence.private:
            self._share(sequence, ids)
        # Counted from the last whole page, where a branch begins.
        whole = sequence.computed // self.shape.page_size * self.shape.page_size
        self._pass(sequence, max(whole - self.shape.behind, 0) // self.shape.page_size)

    def can_restore(self, sequence: Sequence, computed: int, first: int) -> bool:
        """Whether a sequence could go on from `computed` positions that it had before, with the
        sliding group's pages from `first` on; lets go of those before it already."""
        self._pass(sequence, min(first, len(sequence.sliding)))
        pages, known = pages_for(computed, self.shape.page_size), len(sequence.full)
        return self.can(Need(pages - known, pages - max(known, first)))

    def restore(self, sequence: Sequence, computed: int, first: int) -> None:
        """Gives it those pages; somebody else fills them. Ask `can_restore` first."""
        known = len(sequence.full)
        holes = max(first - known, 0)
        count = pages_for(computed, self.shape.page_size) - known
        pages = self._take(Need(count, count - holes))
        sequence.full += pages.full
        sequence.sliding += [NO_PAGE] * holes + list(pages.sliding)
        sequence.first, sequence.computed = max(first, sequence.first), computed
        sequence.changed()

    def close(self, sequence: Sequence) -> None:
        """Lets go of a sequence's pages, the last one first."""
        self.sliding.release(reversed(sequence.sliding[sequence.first :]))
        self.full.release(reversed(sequence.full))
        sequence.full, sequence.sliding, sequence.node = [], [], None
        sequence.first = sequence.shared = sequence.computed = 0
        sequence.changed()

    def check_integrity(self) -> None:
        """Asserts that in both groups free, idle and held pages add up."""
        self.full.check_integrity()
        self.sliding.check_integrity()

    def audit(self) -> None:
        """The same page by page."""
        self.full.audit()
        self.sliding.audit()

    def _pass(self, sequence: Sequence, first: int) -> None:
        """Lets go of a sequence's pages before `first` in the sliding group."""
        if first > sequence.first:
            passed = sequence.sliding[sequence.first : first]
            self.sliding.release(reversed(passed))
            sequence.sliding[sequence.first : first] = [NO_PAGE] * len(passed)
            sequence.first = first
            sequence.changed()

    def _take(self, need: Need) -> Pages:
        assert self.can(need), f"{need} wanted of {self.available}"
        if self.full.num_free < need.full:
            self.prefixes.free_full(need.full)
        if self.sliding.num_free < need.sliding:
            self.prefixes.free_sliding(need.sliding)
        full, sliding = self.full.allocate(need.full), self.sliding.allocate(need.sliding)
        return Pages(tuple(full), tuple(sliding))

    def _share(self, sequence: Sequence, ids: Ids) -> None:
        size = self.shape.page_size
        for index in range(sequence.shared, sequence.computed // size):
            full = sequence.full[index]
            sliding = sequence.sliding[index] if index >= sequence.first else None
            key = ids[index * size : (index + 1) * size]
            node = self.prefixes.insert(sequence.node, sequence.salt, key, full, sliding)
            if node.full != full:
                self._swap(self.full, sequence.full, index, node.full)
                sequence.changed()
            if sliding is not None and node.sliding not in (None, sliding):
                assert node.sliding is not None
                self._swap(self.sliding, sequence.sliding, index, node.sliding)
                sequence.changed()
            sequence.shared, sequence.node = index + 1, node

    @staticmethod
    def _swap(pool: PagePool, pages: list[int], index: int, page: int) -> None:
        """An equal page of the cache takes the place of one's own."""
        pool.retain((page,))
        pool.release((pages[index],))
        pages[index] = page
