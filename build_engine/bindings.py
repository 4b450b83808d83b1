"""Names, dtypes and shapes of what goes in and out of a compiled function; imports no torch.

ONNX graphs and TensorRT engines carry these names; a number is a fixed size, a word a dynamic one.
"""

from __future__ import annotations

from dataclasses import dataclass

from build_engine.contract import EngineContract, Geometry, Limits
from plugins.spec import DRAW_FIELDS, SEGMENT_FIELDS

STEP, HEAD, DENOISE = "step", "head", "denoise"
FUNCTIONS = (STEP, HEAD, DENOISE)

Size = int | str


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


def pool_name(layer: int) -> str:
    """A layer's KV pool going in."""
    return f"kv_pool.{layer}"


def new_pool_name(layer: int) -> str:
    """The same pool coming out; where the runtime can, at the same address."""
    return f"kv_pool_out.{layer}"


def new_rows_name(layer: int) -> str:
    """Keys and values of the execution's rows, of an engine that does not write its pools."""
    return f"kv_rows.{layer}"


def step(geometry: Geometry, page_size: int, dtype: str) -> Signature:
    """`Step`; the fields of `StepInputs` in their order, pools last and again as outputs."""
    row, table = ("rows",), ("tables", "pages_per_row")
    layers = range(geometry.num_layers)
    pages = [
        ("pool_pages", 2, page_size, geometry.kv_heads(n), geometry.head_dim(n)) for n in layers
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


def signatures(contract: EngineContract) -> dict[str, Signature]:
    """Every function of an engine with ONNX bindings, by name."""
    geometry, dtype = contract.geometry, contract.dtype
    return {
        STEP: step(geometry, contract.page_size, dtype),
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
