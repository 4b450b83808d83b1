"""How the attention is launched: tiles by sizes and GPU; imports no torch and no triton.

A program owns one key/value head and a block of query tokens with all query heads that share it.
"""

from dataclasses import dataclass, replace

from plugins.gpu.device import ELEMENT_BYTES, Gpu, power_of_two, tiles_of

_MOST_SPLITS = 64
_LEAST_SPAN = 512


@dataclass(frozen=True)
class AttentionShape:
    """What an engine fixes: heads, the size of a head and of a page, the window (0: none)."""

    query_heads: int
    kv_heads: int
    width: int
    page: int
    window: int

    @property
    def group(self) -> int:
        return self.query_heads // self.kv_heads


@dataclass(frozen=True)
class AttentionPlan:
    shape: AttentionShape
    rows: int  # query rows of a program: tokens times heads of a group, padded to a power of two
    keys: int  # positions folded at a time; tiles lie at multiples of it
    depth: int  # columns of q and k multiplied at a time; `width` keeps q in place
    values: int  # columns of v and of the output that a program owns
    warps: int
    stages: int
    splits: int = 1
    span: int = 0  # positions of a split, a multiple of `keys`; 0: all of them

    @property
    def width(self) -> int:
        """The head's size padded to what a matrix product takes."""
        return power_of_two(self.shape.width, 16)

    @property
    def split_slots(self) -> int:
        return power_of_two(self.splits)

    @property
    def tokens(self) -> int:
        return self.rows // self.shape.group

    def grid(self, rows: int, segments: int) -> tuple[int, int, int]:
        """(blocks, heads, splits times parts of v): every segment may end in a partial block."""
        parts = tiles_of(self.width, self.values)
        return tiles_of(rows, self.tokens) + segments, self.shape.kv_heads, self.splits * parts


def plan_attention(shape: AttentionShape, dtype: str, gpu: Gpu) -> AttentionPlan:
    """The tiles alone, without a split."""
    width = power_of_two(shape.width, 16)
    rows, keys, depth, values, warps, stages = _tile(width, ELEMENT_BYTES[dtype], gpu)
    return AttentionPlan(
        shape, max(rows, power_of_two(shape.group)), keys, depth, values, warps, stages
    )


def split(plan: AttentionPlan, rows: int, positions: int, gpu: Gpu) -> AttentionPlan:
    """The same tiles, with the keys split where the blocks alone would leave processors idle.

    It looks at shapes only, so that a captured graph stays valid: `positions` is what a table row
    can hold. A window bounds what is read, so such layers are never split.
    """
    blocks = tiles_of(rows, plan.tokens) * plan.shape.kv_heads * tiles_of(plan.width, plan.values)
    wanted = min(2 * gpu.processors // max(blocks, 1), positions // _LEAST_SPAN, _MOST_SPLITS)
    if plan.shape.window or wanted < 2:
        return plan
    span = tiles_of(tiles_of(positions, wanted), plan.keys) * plan.keys
    return replace(plan, splits=tiles_of(positions, span), span=span)


def _tile(width: int, size: int, gpu: Gpu) -> tuple[int, int, int, int, int, int]:
    """(rows, keys, depth, values, warps, stages): the largest that leave registers unspilled.

    A program of the widest heads owns half of v's columns: sums of all 512 of 64 rows would take
    every register. Where 64 rows of q do not fit beside keys and values, they are read by columns.
    """
    if size == 4:
        return 16, 32, min(width, 64), min(width, 128), 4, 2
    if width < 64 or (width == 128 and not gpu.roomy):
        return 64, 32, width, width, 4, 2
    if width < 256:
        return 64, 64, width, width, 4, 2
    if width == 256:
        return 64, 64 if gpu.shared_bytes > 128 * 1024 else 32, 256, 256, 8, 2
    if gpu.roomy:
        return 64, 32, 512, 256, 8, 2
    return 32, 64, 64, 256, 8, 2
