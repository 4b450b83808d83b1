"""Every kernel with the types and plans it is compiled for, at the released checkpoint's sizes.

Head sizes that it does not have stand for smaller checkpoints.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from plugins.gpu import attention, denoise_fold, denoise_soft, experts, label_head, page_write
from plugins.gpu.artifact import Signature
from plugins.gpu.attention_plan import AttentionShape, plan_attention
from plugins.gpu.device import Gpu
from plugins.gpu.experts_plan import ExpertPlan, ExpertShape, plan_experts
from plugins.gpu.heads_plan import DenoisePlan, LabelPlan, plan_denoise_head, plan_label_head
from plugins.gpu.launch_plan import Plan
from plugins.gpu.page_plan import plan_page_write

HIDDEN, VOCABULARY, SOFTCAP = 2816, 262_144, 30.0
EXPERTS = ExpertShape(128, 8, HIDDEN, 704)
PAGE, WINDOW = 64, 1024

# (size of a head, query heads, key/value heads, window)
HEADS = (
    *((16, 4, 2, 0), (32, 4, 2, WINDOW), (64, 8, 4, WINDOW), (128, 16, 8, WINDOW)),
    *((256, 16, 8, WINDOW), (512, 16, 2, 0)),
)
BATCHES = (8, 256, 2048)
"""Rows that choose tiles of different heights."""

_P = TypeVar("_P", LabelPlan, DenoisePlan, ExpertPlan)
Types = dict[str, str | tuple[str, ...]]

_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Variant:
    name: str
    kernel: Any
    signature: Signature
    plan: Plan


def variants(dtype: str, gpu: Gpu) -> Iterator[Variant]:
    """All variants for one element type and GPU."""
    pointer = f"*{_TYPES[dtype]}"
    yield from _attention(pointer, dtype, gpu)
    yield from _label_head(pointer, dtype, gpu)
    yield from _denoise_head(pointer, dtype, gpu)
    yield from _experts(pointer, dtype, gpu)


def _by_height(plans: Iterable[_P]) -> list[_P]:
    """One plan of each height, in order."""
    return list({plan.rows: plan for plan in plans}.values())


def _attention(pointer: str, dtype: str, gpu: Gpu) -> Iterator[Variant]:
    new: Types = {"k": pointer, "v": pointer, "slots": "*i64", "before": pointer}
    new |= {"pages": "i32", "pool": pointer}
    yield Variant("page write", page_write.page_write_kernel, new, plan_page_write(8, 256, PAGE))
    inputs: Types = {"inputs": (pointer, pointer, "*i32", "*i32")}
    sizes: Types = {"rows": "i32", "segment_count": "i32", "tables": "i32"}
    sizes |= {"table_width": "i32", "pages": "i32"}
    for width, query, kv, window in HEADS:
        plan = plan_attention(AttentionShape(query, kv, width, PAGE, window), dtype, gpu)
        whole: Types = {**inputs, **sizes, "out": pointer}
        yield Variant(f"attend {width}", attention.attend_kernel, whole, plan)
        parts: Types = {**inputs, **sizes, "outputs": ("*fp32", "*fp32")}
        plan = plan_attention(AttentionShape(query, kv, width, PAGE, 0), dtype, gpu)
        plan = replace(plan, splits=8, span=plan.keys * 64)
        yield Variant(f"attend split {width}", attention.attend_split_kernel, parts, plan)
        merged: Types = {"averages": "*fp32", "masses": "*fp32", "out": pointer}
        yield Variant(f"attend merge {width}", attention.merge_kernel, merged, plan)


def _label_head(pointer: str, dtype: str, gpu: Gpu) -> Iterator[Variant]:
    fold: Types = {"hidden": pointer, "embedding": pointer, "labels": "*i32", "rows": "i32"}
    fold |= {"label_count": "i32", "label_logits": "*fp32", "folds": "*fp32"}
    merge: Types = {
        "folds": "*fp32",
        "rows": "i32",
        "lse": "*fp32",
        "entropy": "*fp32",
        "argmax": "*i32",
    }
    for plan in _by_height(
        plan_label_head(HIDDEN, VOCABULARY, SOFTCAP, dtype, rows, gpu) for rows in BATCHES
    ):
        yield Variant(f"label fold x{plan.rows}", label_head.label_fold_kernel, fold, plan)
    yield Variant("label merge", label_head.label_merge_kernel, merge, plan)


def _denoise_head(pointer: str, dtype: str, gpu: Gpu) -> Iterator[Variant]:
    sizes: Types = {"rows": "i32", "chunk": "i32"}
    fold: Types = {"hidden": pointer, "embedding": pointer, "temperature": "*fp32", "draws": "*i64"}
    fold |= {**sizes, "outputs": (pointer, "*fp32")}
    soft: Types = {"inputs": (pointer, pointer, "*fp32", "*fp32", "*fp32")}
    soft |= {**sizes, "sums": "*fp32"}
    merge: Types = {"folds": "*fp32", "temperature": "*fp32", "before": "*fp32", **sizes}
    merge |= {"state": "*fp32", "factors": "*fp32"}
    results = ("*i32", "*i32", "*fp32", "*fp32", "*fp32", pointer)
    finish: Types = {"state": "*fp32", "sums": "*fp32", "temperature": "*fp32", "rows": "i32"}
    finish |= {"outputs": results}
    sizes_of_row = (HIDDEN, VOCABULARY)
    for plan in _by_height(
        plan_denoise_head(sizes_of_row, SOFTCAP, 1.0, dtype, rows, gpu) for rows in BATCHES
    ):
        yield Variant(f"denoise fold x{plan.rows}", denoise_fold.denoise_fold_kernel, fold, plan)
        # No logit is made in it, so no soft cap either.
        bare = replace(plan, softcap=1.0)
        yield Variant(f"denoise soft x{plan.rows}", denoise_soft.denoise_soft_kernel, soft, bare)
    yield Variant("denoise merge", denoise_fold.denoise_merge_kernel, merge, plan)
    yield Variant("denoise finish", denoise_soft.denoise_finish_kernel, finish, plan)


def _experts(pointer: str, dtype: str, gpu: Gpu) -> Iterator[Variant]:
    first: Types = {
        "x": pointer,
        "order": "*i32",
        "starts": "*i32",
        "gate_up": pointer,
        "pairs": "i32",
        "inner": pointer,
    }
    second: Types = {"inner": pointer, "starts": "*i32", "down": pointer, "pairs": "i32"}
    second |= {"produced": "*fp32"}
    sort: Types = {
        "ids": "*i64",
        "pairs": "i32",
        "order": "*i32",
        "places": "*i32",
        "starts": "*i32",
    }
    combine: Types = {"produced": "*fp32", "places": "*i32", "weights": "*fp32"}
    combine |= {"pairs": "i32", "out": pointer}
    for plan in _by_height(plan_experts(EXPERTS, dtype, rows, gpu) for rows in BATCHES):
        yield Variant(f"gate up x{plan.rows}", experts.gate_up_kernel, first, plan)
        yield Variant(f"down x{plan.rows}", experts.down_kernel, second, plan)
    yield Variant("expert sort", experts.sort_kernel, sort, plan)
    yield Variant("expert combine", experts.combine_kernel, combine, plan)
