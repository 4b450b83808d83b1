"""Rounds dynamic sizes up to few that recur, so that compiled graphs and kernels do; pure."""

from __future__ import annotations

SMALLEST = 4


def bucket(size: int, most: int) -> int:
    """The next power of two, or half way to it, from SMALLEST on; never above `most`."""
    assert 0 < size <= most, f"a size of {size} is outside 1..{most}"
    power = max(SMALLEST, 1 << (size - 1).bit_length())
    between = power * 3 // 4
    return min(between if max(size, SMALLEST) <= between else power, most)


def calls(count: int, per_call: int, most: int) -> tuple[int, ...]:
    """Rows of each call of a head for `count` of at most `most` rows: full calls, then the rest."""
    full, rest = divmod(count, per_call)
    last = (bucket(rest, min(per_call, most - full * per_call)),) if rest else ()
    return (per_call,) * full + last
