"""Reads how a request wants its canvases denoised and its text written, or says what is wrong."""

from __future__ import annotations

from triton_backend import fields
from triton_backend.accept import AcceptRule, ConfidenceFactor, ConfidenceThreshold, EntropyBound
from triton_backend.core import Generation, RequestError
from triton_backend.denoise import Denoising
from triton_backend.fields import Inputs
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.limits import RequestLimits
from triton_backend.options import (
    DENOISING,
    EFFORT_FLOOR,
    Range,
    check_unused,
    option,
    shown,
    temperature,
)

MAX_STOP_WORDS = 64
MAX_STOP_BYTES = 1 << 14


def read_denoising(
    inputs: Inputs, defaults: GenerationDefaults, seed: int, factor: float = 1.0
) -> Denoising:
    """The schedule, the acceptance rule and the stop rule; `factor` scales the temperatures.

    Raises:
        RequestError: a value out of its range, or two rules at once.
    """

    def read(name: str) -> float:
        return option(inputs, name, DENOISING[name], getattr(defaults, name))  # type: ignore[no-any-return]

    t_min, t_max = read("t_min"), read("t_max")
    if t_min > t_max:
        raise RequestError(
            "t_min", f"is {shown(t_min)}", f"t_max is {shown(t_max)}, it must not be lower"
        )
    scale = factor or 1.0
    return Denoising(
        seed=seed,
        max_steps=int(read("max_denoising_steps")),
        t_min=t_min * scale,
        t_max=t_max * scale,
        rule=_rule(inputs, read("entropy_bound")),
        stability_threshold=int(read("stability_threshold")),
        confidence_threshold=read("confidence_threshold"),
        greedy=factor == 0,
    )


def read_generation(
    inputs: Inputs,
    defaults: GenerationDefaults,
    limits: RequestLimits,
    prompt_tokens: int,
    seed: int,
) -> Generation:
    """What is to be written after a prompt of so many tokens.

    Raises:
        RequestError: an option that cannot be honoured, or sizes that do not fit.
    """
    check_unused(inputs)
    room = limits.max_context - prompt_tokens
    if room < 1:
        raise RequestError(
            "the prompt", f"has {prompt_tokens} tokens", f"the context is {limits.max_context}"
        )
    most = Range(1, room)
    max_tokens = option(inputs, "max_tokens", most, min(defaults.max_new_tokens, room))
    widest = Range(1, limits.max_canvas)
    width = option(inputs, "canvas_length", widest, min(limits.canvas_length, limits.max_canvas))
    stream, drafts = fields.flag(inputs, "stream"), fields.flag(inputs, "return_drafts")
    if drafts and not stream:
        raise RequestError("return_drafts", "is true", "drafts need stream to be true")
    start, pinned = _warm_start(inputs, min(width, room), limits.vocab_size)
    return Generation(
        max_tokens=max_tokens,
        canvas_length=width,
        denoising=read_denoising(inputs, defaults, seed, temperature(inputs)),
        stop_ids=limits.stop_ids,
        stop_words=_stop_words(inputs),
        start_ids=start,
        pinned=pinned,
        stream=stream,
        drafts=drafts,
        effort_floor=option(inputs, "effort_floor", EFFORT_FLOOR, 0.0),
    )


def _rule(inputs: Inputs, bound: float) -> AcceptRule:
    names = ("entropy_bound", "accept_threshold", "accept_factor")
    given = [name for name in names if name in inputs]
    if len(given) > 1:
        raise RequestError(" and ".join(given), "are both given", "there is one rule of acceptance")
    if "accept_threshold" in inputs:
        name = "accept_threshold"
        return ConfidenceThreshold(option(inputs, name, DENOISING[name], 0.0))
    if "accept_factor" in inputs:
        return ConfidenceFactor(option(inputs, "accept_factor", DENOISING["accept_factor"], 0.0))
    return EntropyBound(bound)


def _stop_words(inputs: Inputs) -> tuple[str, ...]:
    words = fields.texts(inputs, "stop_words", MAX_STOP_BYTES) if "stop_words" in inputs else ()
    if len(words) > MAX_STOP_WORDS:
        raise RequestError("stop_words", f"holds {len(words)}", f"the limit is {MAX_STOP_WORDS}")
    return words


def _warm_start(
    inputs: Inputs, width: int, vocab_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first canvas's given tokens, and the positions of those that stay as they are."""
    if "canvas_ids" not in inputs:
        if "pinned" in inputs:
            raise RequestError("pinned", "is given without canvas_ids", "it names positions there")
        return (), ()
    ids = fields.row_of_ids(inputs, "canvas_ids")
    if ids.size > width:
        raise RequestError("canvas_ids", f"has {ids.size} tokens", f"the canvas has {width}")
    fields.check_below(ids, vocab_size, "canvas_ids", "the vocabulary")
    if "pinned" not in inputs:
        return tuple(ids.tolist()), ()
    pinned = fields.row_of_ids(inputs, "pinned")
    fields.check_below(pinned, ids.size, "pinned", "canvas_ids")
    unique = sorted(set(pinned.tolist()))
    if len(unique) >= width:
        raise RequestError("pinned", f"names all {width} positions", "one must be left to write")
    return tuple(ids.tolist()), tuple(unique)
