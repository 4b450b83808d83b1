"""A radix tree over pages of tokens: which keys and values of earlier prompts are still there.

A node is one full page of token ids behind those of its parents, so equal prefixes meet in equal
nodes, exactly. Only pages computed by prompt and commit rows come in; a canvas's never do. A node
keeps its page of the full layers for as long as it lives, and that of the sliding layers for as
long as nobody else needs the room: a hit is only as deep as the window behind it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_backend.page_pool import PagePool, pages_for

Ids = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """One page of tokens; `sliding` is None once its page of the sliding layers is given away.

    `parent` is None for the first page, whose siblings are those of the same salt.
    """

    parent: Node | None
    salt: str
    ids: Ids
    full: int
    sliding: int | None = None
    children: dict[Ids, Node] = field(default_factory=dict)


class PrefixCache:
    """The tree over both groups' pages; to the pools it is the cache.

    Whoever holds a node's page of the full group holds those of its parents too, and lets go of
    the last one first. So the page that has been idle for longest is always a leaf's.
    """

    def __init__(self, full: PagePool, sliding: PagePool, page_size: int, window: int) -> None:
        self._full, self._sliding = full, sliding
        self._page_size = page_size
        # Pages behind a position that a row there may look at, in its sliding layers.
        self._behind = pages_for(window - 1, page_size) if window else 0
        self._roots: dict[str, dict[Ids, Node]] = {}
        self._of_full: dict[int, Node] = {}
        self._of_sliding: dict[int, Node] = {}

    def __len__(self) -> int:
        """Pages of tokens that are known."""
        return len(self._of_full)

    def match(self, ids: Ids, salt: str) -> list[Node]:
        """The longest usable path for a prompt, from its first page on; changes nothing.

        Usable: every page of the window behind its end is there.
        """
        path: list[Node] = []
        children, size = self._roots.get(salt, {}), self._page_size
        for start in range(0, len(ids) - size + 1, size):
            node = children.get(ids[start : start + size])
            if node is None:
                break
            path.append(node)
            children = node.children
        while path and any(node.sliding is None for node in self.window_of(path)):
            path.pop()
        return path

    def window_of(self, path: list[Node]) -> list[Node]:
        """The nodes that rows behind the path may look at in their sliding layers."""
        return path[len(path) - min(len(path), self._behind) :]

    def insert(
        self, parent: Node | None, salt: str, ids: Ids, full: int, sliding: int | None
    ) -> Node:
        """The node of a page behind `parent`, made of the caller's held pages where it lacks them.

        If the node was there, the caller changes its own page for the node's.
        """
        children = parent.children if parent else self._roots.setdefault(salt, {})
        node = children.get(ids)
        if node is None:
            node = children[ids] = Node(parent, salt, ids, full)
            self._full.cache(full)
            self._of_full[full] = node
        if node.sliding is None and sliding is not None:
            node.sliding = sliding
            self._sliding.cache(sliding)
            self._of_sliding[sliding] = node
        return node

    def free_full(self, count: int) -> None:
        """Gives idle nodes away until `count` pages of the full group are free, or none is idle."""
        while self._full.num_free < count and self._full.num_idle:
            self._drop(self._of_full[self._full.oldest_idle()])

    def free_sliding(self, count: int) -> None:
        """The same for the sliding group; nodes stay, for longer prefixes to pass through."""
        while self._sliding.num_free < count and self._sliding.num_idle:
            self._drop_sliding(self._of_sliding[self._sliding.oldest_idle()])

    def _drop(self, node: Node) -> None:
        assert not node.children, "a page would go before those behind it"
        if node.sliding is not None:
            self._drop_sliding(node)
        siblings = node.parent.children if node.parent else self._roots[node.salt]
        del siblings[node.ids]
        if node.parent is None and not siblings:
            del self._roots[node.salt]
        del self._of_full[node.full]
        self._full.forget(node.full)

    def _drop_sliding(self, node: Node) -> None:
        assert node.sliding is not None
        del self._of_sliding[node.sliding]
        self._sliding.forget(node.sliding)
        node.sliding = None
