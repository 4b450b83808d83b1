"""Both heads as plugins: folds of the vocabulary and merges, a soft embedding chunk by chunk.

What a chunk changes is a new tensor, not the old one updated: the kernels read and write it once
either way, and TensorRT then neither copies nor orders anything by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plugins.gpu import denoise_fold, denoise_soft, label_head
from plugins.gpu.heads_plan import DenoisePlan, LabelPlan, plan_denoise_head, plan_label_head
from plugins.spec import DRAW_FIELDS
from plugins.tensorrt.plugin import ELEMENT, Plugin, Setting, Tensor
from plugins.tensorrt.sizes import Size, tiles

_BATCHES = (17, 16)  # rows on either side of where the tiles change
_LIKELY = 4  # warps of kernels that have little to do


def _label_plans(setting: Setting) -> Sequence[LabelPlan]:
    sizes = setting.size("width"), setting.size("vocabulary"), float(setting.attributes["softcap"])
    plans = [plan_label_head(*sizes, setting.dtype, rows, setting.gpu) for rows in _BATCHES]
    return list(dict.fromkeys(plans))


def _label_merge_plans(setting: Setting) -> Sequence[LabelPlan]:
    """One tile to a span: only their number counts here."""
    return [LabelPlan(1, setting.size("spans"), 1.0, 1, 1, 1, _LIKELY, 1)]


def _denoise_plans(setting: Setting) -> Sequence[DenoisePlan]:
    sizes = setting.size("width"), setting.size("vocabulary")
    softcap = float(setting.attributes.get("softcap", 1.0))
    plans = [
        plan_denoise_head(sizes, softcap, 1.0, setting.dtype, rows, setting.gpu)
        for rows in _BATCHES
    ]
    plans.append(replace(min(plans, key=lambda plan: plan.rows), stages=1))
    chunk = setting.size("tiles")
    return list(dict.fromkeys(replace(plan, chunk=chunk) for plan in plans))


def _denoise_merge_plans(setting: Setting) -> Sequence[DenoisePlan]:
    plan = DenoisePlan(1, setting.size("all_tiles"), 1.0, 1, 1, 1, _LIKELY, 1)
    return [replace(plan, chunk=setting.size("tiles"))]


def _finish_plans(setting: Setting) -> Sequence[DenoisePlan]:
    scale, width = float(setting.attributes["scale"]), setting.size("width")
    plan = DenoisePlan(width, 1, 1.0, 1, 1, 1, _LIKELY, 1, scale=scale)
    return [replace(plan, chunk=setting.size("splits"))]


def _soft_grid(plan: DenoisePlan) -> tuple[Size, ...]:
    return tiles("rows", plan.rows), *plan.soft_grid(1)[1:]


_HIDDEN = Tensor("hidden", ELEMENT, ("rows", "width"))
_EMBEDDING = Tensor("embedding", ELEMENT, ("vocabulary", "width"))
_TEMPERATURE = Tensor("temperature", "float32", ("rows",))
_STATE = Tensor("state", "float32", (denoise_fold.STATE_FIELDS, "rows"))
_BEFORE = Tensor("before", "float32", None)
_ROWS: dict[str, Size] = {"rows": "rows"}
_CHUNK: dict[str, Size] = {"rows": "rows", "chunk": "chunk"}


def _folds(count: Size) -> Tensor:
    return Tensor("folds", "float32", (denoise_fold.FOLD_FIELDS, count, "rows"))


def _per_row(name: str, dtype: str = "float32") -> Tensor:
    return Tensor(name, dtype, ("rows",))


LABEL_FOLD = Plugin(
    "label_fold",
    label_head.label_fold_kernel,
    (_HIDDEN, _EMBEDDING, Tensor("labels", "int32", ("rows", "label_count"))),
    (
        Tensor("label_logits", "float32", ("rows", "label_count")),
        Tensor("folds", "float32", (label_head.FIELDS, "spans", "rows")),
    ),
    _label_plans,
    lambda plan: (tiles("rows", plan.rows), plan.spans),
    {"rows": "rows", "label_count": "label_count"},
    {"softcap": float, "spans": int},
)
LABEL_MERGE = Plugin(
    "label_merge",
    label_head.label_merge_kernel,
    (Tensor("folds", "float32", (label_head.FIELDS, "spans", "rows")),),
    (_per_row("lse"), _per_row("entropy"), _per_row("argmax", "int32")),
    _label_merge_plans,
    lambda _: ("rows",),
    _ROWS,
)
DENOISE_FOLD = Plugin(
    "denoise_fold",
    denoise_fold.denoise_fold_kernel,
    (_HIDDEN, _EMBEDDING, _TEMPERATURE, Tensor("draws", "int64", ("rows", DRAW_FIELDS))),
    (Tensor("powers", ELEMENT, ("rows", "chunk_width")), _folds("tiles")),
    _denoise_plans,
    lambda plan: (tiles("rows", plan.rows), "chunk_tiles"),
    _CHUNK,
    {"softcap": float, "chunk": int, "tiles": int, "chunk_tiles": int, "chunk_width": int},
)
DENOISE_MERGE = Plugin(
    "denoise_merge",
    denoise_fold.denoise_merge_kernel,
    (_folds("tiles"), _TEMPERATURE, _BEFORE),
    (_STATE, Tensor("factors", "float32", ("tiles", "rows"))),
    _denoise_merge_plans,
    lambda _: ("rows",),
    _CHUNK,
    {"chunk": int, "all_tiles": int},
)
DENOISE_SOFT = Plugin(
    "denoise_soft",
    denoise_soft.denoise_soft_kernel,
    (
        Tensor("powers", ELEMENT, ("rows", "chunk_width")),
        _EMBEDDING,
        Tensor("factors", "float32", ("tiles", "rows")),
        _STATE,
        _BEFORE,
    ),
    (Tensor("sums", "float32", ("splits", "rows", "width")),),
    _denoise_plans,
    _soft_grid,
    _CHUNK,
    {"chunk": int, "splits": int},
)
DENOISE_FINISH = Plugin(
    "denoise_finish",
    denoise_soft.denoise_finish_kernel,
    (_STATE, Tensor("sums", "float32", ("splits", "rows", "width")), _TEMPERATURE),
    (
        *(_per_row("argmax", "int32"), _per_row("candidate", "int32")),
        *(_per_row("entropy"), _per_row("log_prob"), _per_row("candidate_log_prob")),
        Tensor("soft", ELEMENT, ("rows", "width")),
    ),
    _finish_plans,
    lambda plan: ("rows", plan.soft_grid(1)[1]),
    _ROWS,
    {"scale": float, ELEMENT: int},
)
PLUGINS = (LABEL_FOLD, LABEL_MERGE, DENOISE_FOLD, DENOISE_MERGE, DENOISE_SOFT, DENOISE_FINISH)
