"""Mixed-mask paged attention as plugins: page write, then attend, whole or split and merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.gpu import attention, page_write
from plugins.gpu.attention_plan import AttentionPlan, AttentionShape, plan_attention
from plugins.gpu.device import power_of_two
from plugins.gpu.page_plan import PagePlan, plan_page_write
from plugins.spec import SEGMENT_FIELDS
from plugins.tensorrt.plugin import ELEMENT, Plugin, Setting, Tensor
from plugins.tensorrt.sizes import Size, plus, tiles, times

_LEAST = 16  # of rows and of keys, for a matrix product
_POOL = ("pages", 2, "page", "kv_heads", "width")
_QUERIES = ("rows", "query_heads", "width")
_NEW = ("rows", "kv_heads", "width")


def shape_of(setting: Setting) -> AttentionShape:
    query, kv, width, page = map(setting.size, ("query_heads", "kv_heads", "width", "page"))
    return AttentionShape(query, kv, width, page, int(setting.attributes.get("window", 0)))


def _page_plans(setting: Setting) -> Sequence[PagePlan]:
    plan = plan_page_write(*map(setting.size, ("kv_heads", "width", "page")))
    return plan, replace(plan, warps=8)


def _attend_plans(setting: Setting) -> Sequence[AttentionPlan]:
    """The kernels' own choice, lower and narrower tiles for short steps, and one of both that takes
    no more shared memory than every launch may have."""
    plan = plan_attention(shape_of(setting), setting.dtype, setting.gpu)
    if "splits" in setting.attributes:
        plan = replace(plan, splits=setting.size("splits"), span=setting.size("span"))
    plans = [plan]
    if plan.rows // 2 >= max(_LEAST, plan.shape.group):
        plans.append(replace(plan, rows=plan.rows // 2))
    if plan.keys // 2 >= _LEAST:
        plans.append(replace(plan, keys=plan.keys // 2))
    rows, depth = power_of_two(plan.shape.group, _LEAST), min(plan.width, 64)
    plans.append(replace(plan, rows=rows, keys=_LEAST, depth=depth, warps=4, stages=1))
    return list(dict.fromkeys(plans))


def _attend_grid(plan: AttentionPlan) -> tuple[Size, ...]:
    _, heads, columns = plan.grid(1, 1)
    return plus(tiles("rows", plan.tokens), "segments"), heads, columns


def _merge_plans(setting: Setting) -> Sequence[AttentionPlan]:
    shape = AttentionShape(setting.size("query_heads"), 1, setting.size("width"), 1, 0)
    plan = AttentionPlan(shape, _LEAST, _LEAST, shape.width, shape.width, 4, 2)
    return [replace(plan, splits=setting.size("splits"))]


_SEEN = (
    Tensor("q", ELEMENT, _QUERIES),
    Tensor("pool", ELEMENT, _POOL),
    Tensor("segments", "int32", ("segments", SEGMENT_FIELDS)),
    Tensor("table", "int32", ("tables", "pages_per_row")),
)
_SCALARS: dict[str, Size] = {
    "rows": "rows",
    "segment_count": "segments",
    "tables": "tables",
    "table_width": "pages_per_row",
    "pages": "pages",
}
_PARTIAL = ("rows", "query_heads", "splits")

PAGE_WRITE = Plugin(
    "page_write",
    page_write.page_write_kernel,
    (
        Tensor("k", ELEMENT, _NEW),
        Tensor("v", ELEMENT, _NEW),
        Tensor("slots", "int64", ("rows",)),
        Tensor("before", ELEMENT, _POOL),
    ),
    (Tensor("pool", ELEMENT, _POOL, alias="before"),),
    _page_plans,
    lambda _: ("rows",),
    {"pages": "pages"},
)
ATTEND = Plugin(
    "attend",
    attention.attend_kernel,
    _SEEN,
    (Tensor("out", ELEMENT, _QUERIES),),
    _attend_plans,
    _attend_grid,
    _SCALARS,
    {"window": int},
)
ATTEND_SPLIT = Plugin(
    "attend_split",
    attention.attend_split_kernel,
    _SEEN,
    (
        Tensor("averages", "float32", (*_PARTIAL, "width")),
        Tensor("masses", "float32", _PARTIAL),
    ),
    _attend_plans,
    _attend_grid,
    _SCALARS,
    {"splits": int, "span": int},
)
ATTEND_MERGE = Plugin(
    "attend_merge",
    attention.merge_kernel,
    (
        Tensor("averages", "float32", (*_PARTIAL, "width")),
        Tensor("masses", "float32", _PARTIAL),
    ),
    (Tensor("out", ELEMENT, _QUERIES),),
    _merge_plans,
    lambda _: (times("rows", "query_heads"),),
    attributes={ELEMENT: int},
)
PLUGINS = (PAGE_WRITE, ATTEND, ATTEND_SPLIT, ATTEND_MERGE)
