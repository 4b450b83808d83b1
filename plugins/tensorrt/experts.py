"""The routed experts as four plugins: sort, gate and up, down, combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.gpu import experts
from plugins.gpu.experts_plan import ExpertPlan, ExpertShape, plan_experts
from plugins.tensorrt.plugin import ELEMENT, Plugin, Setting, Tensor
from plugins.tensorrt.sizes import Size, least, part, plus, tiles, times

_HEIGHTS = (32, 64, 16)  # of a block of rows, first what a canvas of the released sizes takes


def _plans(shape: ExpertShape, setting: Setting) -> Sequence[ExpertPlan]:
    """Blocks of every height, and one of little shared memory; fp32 has one alone."""
    plan = plan_experts(shape, setting.dtype, 1, setting.gpu)
    if setting.dtype == "float32":
        return [plan]
    every = [replace(plan, rows=height) for height in _HEIGHTS]
    return *every, replace(plan, rows=min(_HEIGHTS), stages=2)


def _gate_up_plans(setting: Setting) -> Sequence[ExpertPlan]:
    size = setting.size
    shape = ExpertShape(size("experts"), size("choices"), size("width"), size("both") // 2)
    return _plans(shape, setting)


def _down_plans(setting: Setting) -> Sequence[ExpertPlan]:
    size = setting.size
    shape = ExpertShape(size("experts"), 1, size("width"), size("inner"))
    return _plans(shape, setting)


def _sort_plans(setting: Setting) -> Sequence[ExpertPlan]:
    shape = ExpertShape(setting.size("experts"), setting.size("choices"), 1, 1)
    plan = plan_experts(shape, "float32", 1, setting.gpu)
    return plan, replace(plan, warps=1)


def _combine_plans(setting: Setting) -> Sequence[ExpertPlan]:
    shape = ExpertShape(1, setting.size("choices"), setting.size("width"), 1)
    return [plan_experts(shape, setting.dtype, 1, setting.gpu)]


def _grid(plan: ExpertPlan, columns: int) -> tuple[Size, ...]:
    blocks = plus(tiles("pairs", plan.rows), least("pairs", plan.shape.experts))
    return blocks, plan.grid(1, columns)[1]


_PAIRS = times("rows", "choices")
_WITHIN: dict[str, Size] = {"pairs": "pairs"}
_STARTS = Tensor("starts", "int32", ("bounds",))

SORT = Plugin(
    "expert_sort",
    experts.sort_kernel,
    (Tensor("ids", "int64", ("rows", "choices")),),
    (
        Tensor("order", "int32", (_PAIRS,)),
        Tensor("places", "int32", (_PAIRS,)),
        Tensor("starts", "int32", (plus("experts", 1),)),
    ),
    _sort_plans,
    lambda plan: (plan.shape.experts,),
    {"pairs": _PAIRS},
    {"experts": int},
)
GATE_UP = Plugin(
    "expert_gate_up",
    experts.gate_up_kernel,
    (
        Tensor("x", ELEMENT, ("rows", "width")),
        Tensor("order", "int32", ("pairs",)),
        _STARTS,
        Tensor("gate_up", ELEMENT, ("experts", "both", "width")),
    ),
    (Tensor("inner", ELEMENT, ("pairs", part("both", 2))),),
    _gate_up_plans,
    lambda plan: _grid(plan, plan.shape.inner),
    _WITHIN,
    {"choices": int},
)
DOWN = Plugin(
    "expert_down",
    experts.down_kernel,
    (
        Tensor("inner", ELEMENT, ("pairs", "inner")),
        _STARTS,
        Tensor("down", ELEMENT, ("experts", "width", "inner")),
    ),
    (Tensor("produced", "float32", ("pairs", "width")),),
    _down_plans,
    lambda plan: _grid(plan, plan.shape.hidden),
    _WITHIN,
)
COMBINE = Plugin(
    "expert_combine",
    experts.combine_kernel,
    (
        Tensor("produced", "float32", ("pairs", "width")),
        Tensor("places", "int32", ("pairs",)),
        Tensor("weights", "float32", ("rows", "choices")),
    ),
    (Tensor("out", ELEMENT, ("rows", "width")),),
    _combine_plans,
    lambda plan: ("rows", plan.combine_grid(1)[1]),
    _WITHIN,
    {ELEMENT: int},
)
PLUGINS = (SORT, GATE_UP, DOWN, COMBINE)
