"""Names, dtypes and shapes of what goes in and out of a compiled function; imports no torch.

ONNX graphs and TensorRT engines carry these names; a number is a fixed size, a word a dynamic one.
"""

from __future__ import annotations

from dataclasses import dataclass

from build_engine.contract import EngineContract, Geometry, Limits
from plugins.spec import DRAW_FIELDS, SEGMENT_FIELDS

STEP, HEAD, DENOISE = "step", "head", "denoise"
FUNCTIONS = (STEP, HEAD, DENOISE)

CUDA, TENSORRT, TENSORRT_RTX = "cuda", "tensorrt", "tensorrt-rtx"
"""Targets whose functions differ from those of the ONNX graphs."""

SLIDING_PAGES, FULL_PAGES = "sliding_pages", "full_pages"

Size = int | str

_HEAD_ROWS = 256  # of one call of a head that holds its rows' logits
_SMALL_ROWS, _SMALL_SEGMENTS = 512, 32
_ELEMENTS = (1 << 31) - 1  # of one tensor of TensorRT
_POOL_PAGES = 1 << 24


@dataclass(frozen=True)
class Binding:
    """One tensor; the dtype is a name that NumPy and torch share, or bfloat16."""

    name: str
    dtype: str
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one function, in order."""

    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]


@dataclass(frozen=True)
class Range:
    """Smallest, usual and largest value of a dynamic size."""

    least: int
    usual: int
    most: int


LANES = Binding("lanes", "int64", ("lanes",))
"""0 .. M - 1, M the rows of the longest segment: a size that only the host knows in time."""


def pool_name(layer: int) -> str:
    """A layer's KV pool going in."""
    return f"kv_pool.{layer}"


def pages_of(geometry: Geometry, layer: int) -> str:
    """The dynamic size that counts the pages of a layer's pool; each KV group has its own."""
    return SLIDING_PAGES if geometry.is_sliding(layer) else FULL_PAGES


def is_pool(name: str) -> bool:
    """Whether an input is a KV pool."""
    return name.startswith("kv_pool.")


def new_pool_name(layer: int) -> str:
    """The same pool coming out; where the runtime can, at the same address."""
    return f"kv_pool_out.{layer}"


def pool_of(name: str) -> str | None:
    """The pool that an output is, once written; None of an output that is no pool."""
    head, _, layer = name.partition(".")
    return pool_name(int(layer)) if head == "kv_pool_out" else None


def new_rows_name(layer: int) -> str:
    """Keys and values of the execution's rows, of an engine that does not write its pools."""
    return f"kv_rows.{layer}"


def step(geometry: Geometry, page_size: int, dtype: str) -> Signature:
    """`Step`; the fields of `StepInputs` in their order, pools last and again as outputs."""
    row, table = ("rows",), ("tables", "pages_per_row")
    layers = range(geometry.num_layers)
    pages = [
        (pages_of(geometry, n), 2, page_size, geometry.kv_heads(n), geometry.head_dim(n))
        for n in layers
    ]
    return Signature(
        (
            Binding("token_ids", "int64", row),
            Binding("positions", "int64", row),
            Binding("phases", "int32", row),
            Binding("slots_sliding", "int64", row),
            Binding("slots_full", "int64", row),
            Binding("segments", "int32", ("segments", SEGMENT_FIELDS)),
            Binding("table_sliding", "int32", table),
            Binding("table_full", "int32", table),
            Binding("soft_index", "int64", row),
            Binding("soft", dtype, ("soft", geometry.hidden_size)),
            Binding("output_rows", "int64", ("outputs",)),
            *(Binding(pool_name(n), dtype, pages[n]) for n in layers),
        ),
        (
            Binding("hidden", dtype, ("outputs", geometry.hidden_size)),
            *(Binding(new_pool_name(n), dtype, pages[n]) for n in layers),
        ),
    )


def head(geometry: Geometry, dtype: str) -> Signature:
    """`Head`."""
    row, labels = ("reads",), ("reads", "labels")
    return Signature(
        (
            Binding("hidden", dtype, ("reads", geometry.hidden_size)),
            Binding("label_ids", "int32", labels),
        ),
        (
            Binding("label_logits", "float32", labels),
            Binding("lse", "float32", row),
            Binding("entropy", "float32", row),
            Binding("argmax", "int32", row),
        ),
    )


def denoise(geometry: Geometry, dtype: str) -> Signature:
    """`DenoiseHead`."""
    row, rows = ("denoised",), ("denoised", geometry.hidden_size)
    return Signature(
        (
            Binding("hidden", dtype, rows),
            Binding("temperature", "float32", row),
            Binding("draws", "int64", ("denoised", DRAW_FIELDS)),
        ),
        (
            Binding("argmax", "int32", row),
            Binding("candidate", "int32", row),
            Binding("entropy", "float32", row),
            Binding("log_prob", "float32", row),
            Binding("candidate_log_prob", "float32", row),
            Binding("soft", dtype, rows),
        ),
    )


def step_in_place(step: Signature) -> Signature:
    """The step that updates its pools and returns none."""
    return Signature(step.inputs, step.outputs[:1])


def step_of_rows(step: Signature) -> Signature:
    """The step that only reads its pools, returns its rows' keys and values and takes `lanes`."""
    pools = [binding for binding in step.inputs if is_pool(binding.name)]
    rows = [
        Binding(new_rows_name(n), pool.dtype, ("rows", 2, *pool.shape[3:]))
        for n, pool in enumerate(pools)
    ]
    return Signature((*step.inputs, LANES), (step.outputs[0], *rows))


_STEPS = {CUDA: step_in_place, TENSORRT_RTX: step_of_rows}


def plan_file(target: str, function: str) -> str:
    """The plan of a function; TensorRT's step has TensorRT-LLM's name for the first rank's."""
    first = target == TENSORRT and function == STEP
    return "rank0.engine" if first else f"{function}.engine"


def signatures(contract: EngineContract) -> dict[str, Signature]:
    """Every function of an engine by name, as its target has them."""
    return target_signatures(contract.target, contract.geometry, contract.page_size, contract.dtype)


def target_signatures(
    target: str, geometry: Geometry, page_size: int, dtype: str
) -> dict[str, Signature]:
    """Every function of a target by name; of the ONNX graphs where it has none of its own."""
    whole = step(geometry, page_size, dtype)
    return {
        STEP: _STEPS[target](whole) if target in _STEPS else whole,
        HEAD: head(geometry, dtype),
        DENOISE: denoise(geometry, dtype),
    }


def dynamic_sizes(limits: Limits, page_size: int) -> dict[str, int]:
    """Largest value of every dynamic size that the limits bound; pools have their own."""
    pages = -(-limits.max_context // page_size) + -(-limits.max_canvas // page_size)
    return {
        "rows": limits.max_step_tokens,
        "segments": limits.max_segments,
        "tables": limits.max_segments,
        "pages_per_row": pages,
        "soft": limits.max_step_tokens + 2,
        "outputs": limits.max_output_rows + limits.max_step_tokens,
        "reads": limits.max_output_rows,
        "denoised": limits.max_step_tokens,
        "labels": limits.max_labels,
    }


def target_sizes(target: str, geometry: Geometry, limits: Limits, page_size: int) -> dict[str, int]:
    """Largest value of every dynamic size of one call, pools included, on a target."""
    most = {**dynamic_sizes(limits, page_size), "lanes": limits.max_step_tokens}
    most |= {SLIDING_PAGES: _POOL_PAGES, FULL_PAGES: _POOL_PAGES}
    if target in (TENSORRT, TENSORRT_RTX):
        widths = {
            SLIDING_PAGES: geometry.sliding_kv_heads * geometry.sliding_head_dim,
            FULL_PAGES: geometry.full_kv_heads * geometry.full_head_dim,
        }
        most |= {name: _ELEMENTS // (2 * page_size * width) for name, width in widths.items()}
    if target == TENSORRT_RTX:
        for rows in ("reads", "denoised"):
            most[rows] = min(most[rows], _HEAD_ROWS)
    return most


def profiles(
    target: str, geometry: Geometry, limits: Limits, page_size: int
) -> tuple[dict[str, Range], ...]:
    """Optimisation profiles of a plan, smallest steps first: one on TensorRT-RTX, else two."""
    most = target_sizes(target, geometry, limits, page_size)
    large = {name: Range(1, max(1, value // 4), value) for name, value in most.items()}
    if target == TENSORRT_RTX:
        return (large,)
    least = {"rows": _SMALL_ROWS, "segments": _SMALL_SEGMENTS, "tables": _SMALL_SEGMENTS}
    least |= {"soft": _SMALL_ROWS + 2, "outputs": 2 * _SMALL_ROWS}
    least |= {"reads": _SMALL_ROWS, "denoised": _SMALL_ROWS}
    small = {name: min(value, least.get(name, value)) for name, value in most.items()}
    return {name: Range(1, max(1, value // 2), value) for name, value in small.items()}, large
