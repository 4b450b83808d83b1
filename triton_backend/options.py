"""The options of denoising and writing: which values each may have, and what is wrong with others.

A value that cannot be honoured is refused by name; one that changes nothing is always accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_backend.core import RequestError
from triton_backend.fields import Inputs, flag, number


@dataclass(frozen=True)
class Range:
    """Values from `low` to `high`, which are finite."""

    low: float
    high: float
    above: bool = False  # `low` itself is excluded

    def holds(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {shown(self.low)} to {shown(self.high)}"


DENOISING = {
    "max_denoising_steps": Range(1, 1024),
    "entropy_bound": Range(0, 1e6),
    "t_min": Range(0, 10),
    "t_max": Range(0.01, 10),
    "stability_threshold": Range(0, 64),
    "confidence_threshold": Range(0, 1e6, above=True),
    "accept_threshold": Range(0, 1),
    "accept_factor": Range(0, 1e6),
}
"""Options of any canvas that is denoised."""

TEMPERATURE = Range(0.01, 10)
"""What `temperature` may be besides 0."""

EFFORT_FLOOR = Range(0, 1)
"""The least share of the denoising steps that an overloaded server may allow."""

NEUTRAL: dict[str, tuple[tuple[float, ...], str]] = {
    "top_k": ((0, -1), "draws are from the whole vocabulary"),
    "top_p": ((0, 1), "draws are from the whole vocabulary"),
    "min_p": ((0,), "draws are from the whole vocabulary"),
    "repetition_penalty": ((1,), "a canvas has no order in which to penalise"),
    "presence_penalty": ((0,), "a canvas has no order in which to penalise"),
    "frequency_penalty": ((0,), "a canvas has no order in which to penalise"),
    "length_penalty": ((0, 1), "there are no beams"),
    "beam_width": ((1,), "there are no beams"),
    "num_return_sequences": ((1,), "ask once for each, with a seed of its own"),
    "min_tokens": ((0, 1), "a stop token cannot be kept back"),
}
"""Options of other engines: the values that change nothing, and why no other is possible."""

REFUSED = {
    "bad_words": "a word cannot be kept out of a canvas",
    "guided_decoding_guide": "for answers of a fixed form use a structured read (`questions`)",
    "guided_decoding_guide_type": "for answers of a fixed form use a structured read (`questions`)",
    "image_url": "images are not supported yet",
    "image_bytes": "images are not supported yet",
}
"""Options that are only accepted empty."""

WRITING = (
    "max_tokens", "canvas_length", "stream", "stop_words", "temperature", "pinned", "effort_floor",
)  # fmt: skip
SHOWN = ("return_log_probs", "return_drafts", "exclude_input_in_output")
NAMES = (*DENOISING, *WRITING, *SHOWN, *NEUTRAL, *REFUSED)
"""Every option; all are inputs of their own."""


def shown(value: float) -> str:
    """A number as a message shows it."""
    return f"{value:.10g}"


def option(inputs: Inputs, name: str, allowed: Range, default: Any) -> Any:
    """The number given under a name, whole if the default is, or the default.

    Raises:
        RequestError: not one number, outside the range, or a fraction of a whole number.
    """
    if name not in inputs:
        return default
    value, whole = number(inputs, name), isinstance(default, int)
    if not allowed.holds(value) or (whole and not value.is_integer()):
        kind = "whole numbers" if whole else "values"
        raise RequestError(name, f"is {shown(value)}", f"allowed are {kind} {allowed}")
    return type(default)(value)


def temperature(inputs: Inputs) -> float:
    """The factor on the schedule's temperatures, or 0 for the most likely token at each draw."""
    if "temperature" not in inputs:
        return 1.0
    value = number(inputs, "temperature")
    if value != 0 and not TEMPERATURE.holds(value):
        limit = f"allowed are 0 (no randomness in candidates) and values {TEMPERATURE}"
        raise RequestError("temperature", f"is {shown(value)}", limit)
    return value


def is_default(inputs: Inputs, name: str) -> bool:
    """Whether an option of WRITING or SHOWN is given as it is when it is not given."""
    if name in ("stream", "return_log_probs", "return_drafts"):
        return not flag(inputs, name)
    if name == "stop_words":
        return all(_is_empty(value) for value in inputs[name].flat)
    if name == "temperature":
        return temperature(inputs) == 1
    return name == "exclude_input_in_output"


def check_unused(inputs: Inputs) -> None:
    """Accepts what changes nothing, refuses what cannot be honoured.

    Raises:
        RequestError: the first option that is neither.
    """
    for name, (values, why) in NEUTRAL.items():
        if name in inputs and (value := number(inputs, name)) not in values:
            allowed = " or ".join(map(shown, values))
            raise RequestError(name, f"is {shown(value)}", f"only {allowed} is possible: {why}")
    for name, why in REFUSED.items():
        if name in inputs and not all(_is_empty(value) for value in inputs[name].flat):
            raise RequestError(name, "is given", why)
    if "exclude_input_in_output" in inputs and not flag(inputs, "exclude_input_in_output"):
        raise RequestError(
            "exclude_input_in_output", "is false", "the input is never part of the output"
        )


def _is_empty(value: object) -> bool:
    return value in (b"", "")
