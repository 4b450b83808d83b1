"""How many KV pages a request needs: to be possible at all, and to go on from where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from triton_backend.core import Request
from triton_backend.kv_cache import KvCache, KvShape, Need
from triton_backend.page_pool import pages_for
from triton_backend.progress import Progress, widest


def longest_context(request: Request) -> int:
    """Tokens of the longest context a request comes to; its last canvas is never committed."""
    tokens = len(request.prompt_ids)
    if (asked := request.generation) is not None:
        tokens += (asked.max_tokens - 1) // asked.canvas_length * asked.canvas_length
    return tokens


def least_need(request: Request, shape: KvShape) -> Need:
    """Pages without which a request cannot finish even alone, a few tokens at a time."""
    size = shape.page_size
    context = pages_for(longest_context(request), size)
    own = max((len(canvas.prompt_ids) for canvas in request.canvases), default=0)
    # A branch begins at the last whole page of the context.
    branch = pages_for(own + size - 1, size) if own else 0
    scratch = pages_for(widest(request), size)
    # The window may begin and end inside a page, and the next row needs one more.
    window = pages_for(shape.behind, size) + 2
    return Need(context + branch + scratch, min(context, window) + branch + scratch)


def freed(members: Iterable[Progress], kv: KvCache) -> Need:
    """Pages that would be there if these running requests gave theirs back: nobody else's."""
    held = [one for progress in members for one in (progress.context, *progress.branches.values())]
    full = Counter(page for one in held for page in one.full)
    sliding = Counter(page for one in held for page in one.sliding[one.first :])
    return Need(kv.full.num_freed(full), kv.sliding.num_freed(sliding))


def claim(progress: Progress, kv: KvCache, budget: int) -> Need:
    """Pages that a running request has yet to take for its context and a canvas over it."""
    size, remaining = kv.shape.page_size, progress.remaining
    scratch = pages_for(progress.widest + progress.next_own, size)
    if not remaining:
        return Need(scratch, scratch)
    more = kv.needs(progress.context, remaining).full
    at_once = pages_for(min(remaining, budget) + kv.shape.behind, size) + 1
    return Need(more + scratch, min(more, at_once) + scratch)
