"""Shapes replies and pieces as named arrays, the response tensors; knows no server.

Names that TensorRT-LLM's ensemble has are used as it uses them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from triton_backend.core import Piece, Reply, Timing, Written
from triton_backend.fields import Array
from triton_backend.parse import Parsed
from triton_backend.questions import answers

Arrays = dict[str, Array]


def empty_chunk() -> Arrays:
    """A streamed response that says nothing yet."""
    return _tokens((), None, "") | {"draft": np.array([False])}


def chunk(piece: Piece, log_probs: bool) -> Arrays:
    """A streamed response: the tokens of one canvas, or a draft of them after one step."""
    return _tokens(piece.token_ids, piece.log_probs if log_probs else None, piece.text) | {
        "canvas": np.array([piece.canvas], np.int32),
        "denoising_steps": np.array([piece.step], np.int32),
        "canvas_entropy": np.array(piece.entropy, np.float32),
        "draft": np.array([piece.draft]),
    }


def final(reply: Reply, parsed: Parsed, sending: float = 0.0) -> Arrays:
    """The last response of a request that was served; `sending` is how old the reply is."""
    own = sum(len(canvas.prompt_ids) for canvas in reply.request.canvases)
    arrays: Arrays = {
        "executions": np.array([reply.executions], np.int32),
        "fusion": _text(reply.fusion),
        "queue_ms": np.array([reply.timing.queue * 1e3], np.float32),
        "execution_ms": np.array([reply.timing.execution * 1e3], np.float32),
        "num_input_tokens": np.array([len(reply.request.prompt_ids) + own], np.int32),
        "cached_tokens": np.array([reply.cached_tokens], np.int32),
        "preemptions": np.array([reply.preemptions], np.int32),
    }
    if parsed.treatment.timing:
        arrays["timing_ms"] = _text(json.dumps(_timing_ms(reply.timing, sending)))
    if parsed.treatment.trace is not None:
        arrays["traceparent"] = _text(parsed.treatment.trace.traceparent)
    if reply.written is not None:
        return arrays | _written(reply, reply.written, parsed.log_probs)
    return arrays | _read(reply, parsed)


def _read(reply: Reply, parsed: Parsed) -> Arrays:
    """The slots of all canvases, one after the other."""
    names = ("log_probs", "probs", "label_mass", "entropy", "argmax")
    arrays: Arrays = {
        f"slot_{name}": np.concatenate([getattr(read, name) for read in reply.reads])
        for name in names
    }
    arrays["slot_counts"] = np.array([len(read.argmax) for read in reply.reads], np.int32)
    if parsed.questions:
        probs = arrays["slot_probs"].tolist()
        arrays["answers"] = _text(json.dumps(answers(parsed.questions, probs), ensure_ascii=False))
    return arrays


def _timing_ms(timing: Timing, sending: float) -> dict[str, float]:
    seconds = {
        "queue": timing.queue, "kv_wait": timing.kv_wait, "prefill": timing.prefill,
        "denoise": timing.denoise, "execution": timing.execution, "send": sending,
    }  # fmt: skip
    return {name: round(value * 1e3, 3) for name, value in seconds.items()}


def _written(reply: Reply, written: Written, log_probs: bool) -> Arrays:
    """All tokens and the text, unless they were streamed; the counts in either case."""
    assert reply.request.generation is not None
    streamed = reply.request.generation.stream
    ids = () if streamed else written.token_ids
    shown = (() if streamed else written.log_probs) if log_probs else None
    arrays = _tokens(ids, shown, "" if streamed else written.text)
    arrays |= {
        "num_output_tokens": np.array([len(written.token_ids)], np.int32),
        "finish_reason": _text(written.finish_reason.value),
        "denoising_steps": np.array(written.steps, np.int32),
        "tokens_per_execution": np.array([len(written.token_ids) / reply.executions], np.float32),
        "effort": np.array([written.effort], np.float32),
        "draft": np.array([False]),
    }
    if log_probs:
        arrays["cum_log_probs"] = np.array([np.sum(written.log_probs)], np.float32)
    return arrays


def _tokens(ids: Sequence[int], log_probs: Sequence[float] | None, text: str) -> Arrays:
    arrays: Arrays = {
        "text_output": _text(text),
        "output_ids": np.array(ids, np.int32),
        "num_output_tokens": np.array([len(ids)], np.int32),
    }
    if log_probs is not None:
        arrays["output_log_probs"] = np.array(log_probs, np.float32)
    return arrays


def _text(value: str) -> Array:
    return np.array([value.encode()], np.object_)
