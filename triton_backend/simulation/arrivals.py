"""Who asks for what and when: drawn, or as a recorded trace has it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triton_backend.simulation.setting import Model

_AT_ONCE = 4096


class TraceError(ValueError):
    """A recorded trace is wrong; one sentence naming the line and what would be right."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request at `at` seconds: `prompt` tokens, then canvases of so many `steps` each.

    A read's canvases run side by side, others one after the other. The first `shared` tokens of
    the prompt are those of all requests of the same `group`.
    """

    at: float
    prompt: int
    steps: tuple[int, ...]
    is_read: bool = False
    group: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Lengths:
    """A log-normal distribution of lengths in tokens."""

    median: float
    sigma: float

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many lengths, at least 1."""
        drawn = random.lognormal(math.log(self.median), self.sigma, count)
        return np.maximum(drawn.astype(np.int64), 1)


@dataclass(frozen=True)
class Workload:
    """Lengths of prompts and outputs, and what share of requests only read.

    A read has `questions` canvases of one step. With `groups`, every prompt begins with the
    `shared` tokens of one of them.
    """

    prompt: Lengths
    output: Lengths
    reads: float = 0.0
    questions: int = 1
    groups: int = 0
    shared: int = 0


WORKLOADS = {
    "sharegpt": Workload(Lengths(795, 0.398), Lengths(596, 0.644)),
    "arxiv": Workload(Lengths(2827, 0.141), Lengths(890, 0.258)),
    "reads": Workload(Lengths(400, 0.398), Lengths(1, 0.0), reads=1.0),
    "mixed": Workload(
        Lengths(795, 0.398), Lengths(596, 0.644), reads=0.8, groups=16, shared=256
    ),
}  # fmt: skip


def synthetic(
    workload: Workload, model: Model, rate: float, count: int, seed: int
) -> Iterator[Arrival]:
    """`count` requests of Poisson arrivals at `rate` a second; the same for the same seed."""
    random = np.random.default_rng(seed)
    clock = 0.0
    for first in range(0, count, _AT_ONCE):
        many = min(_AT_ONCE, count - first)
        times = clock + np.cumsum(random.exponential(1 / rate, many))
        clock = float(times[-1])
        yield from _drawn(workload, model, times, random)


def _drawn(
    workload: Workload,
    model: Model,
    times: NDArray[np.float64],
    random: np.random.Generator,
) -> Iterator[Arrival]:
    count, width = len(times), model.canvas
    prompts = workload.prompt.draw(random, count)
    reads = random.random(count) < workload.reads
    canvases = -(-workload.output.draw(random, count) // width)
    # Whatever is drawn can be served: no longer than the engine's context.
    canvases = np.clip(canvases, 1, model.limits.max_context // 2 // width)
    prompts = np.clip(prompts, 1, model.limits.max_context - canvases * width)
    groups = random.integers(1, workload.groups + 1, count) if workload.groups else None
    drawn = draw_steps(model, int(canvases.sum()), random)
    ends = np.cumsum(canvases).tolist()
    start = 0
    rows = zip(times.tolist(), prompts.tolist(), reads.tolist(), ends, strict=True)
    for n, (at, prompt, is_read, end) in enumerate(rows):
        steps = (1,) * workload.questions if is_read else tuple(drawn[start:end])
        group = 0 if groups is None else int(groups[n])
        yield Arrival(at, prompt, steps, is_read, group, min(workload.shared, prompt))
        start = end


def draw_steps(model: Model, count: int, random: np.random.Generator) -> list[int]:
    """Denoising steps of so many canvases."""
    drawn = 1 + random.poisson(model.mean_steps - 1, count)
    steps: list[int] = np.clip(drawn, model.least_steps, model.most_steps).tolist()
    return steps


def recorded(path: Path, model: Model, seed: int = 0) -> Iterator[Arrival]:
    """Requests of a trace: JSON lines of `at` (seconds, never falling), `prompt` and `output`
    (tokens); `questions` instead of `output` for a read; `group` and `shared` if prompts begin
    alike. Denoising steps are drawn, unless `steps` has one number a canvas.

    Raises:
        TraceError: a line is no such thing, or asks for more than the model's context.
    """
    random, before = np.random.default_rng(seed), 0.0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            arrival = _parsed(line, f"{path}:{number}", model, random)
            if arrival.at < before:
                raise TraceError(f"{path}:{number}: at is {arrival.at}, behind a later {before}.")
            before = arrival.at
            yield arrival


_KEYS = {"at", "prompt", "output", "questions", "steps", "group", "shared"}


def _parsed(line: str, where: str, model: Model, random: np.random.Generator) -> Arrival:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{where}: not JSON ({error}).") from None
    if not isinstance(entry, dict) or set(entry) - _KEYS or not {"at", "prompt"} <= set(entry):
        raise TraceError(f"{where}: an object with at, prompt and of {sorted(_KEYS)} is needed.")
    at = entry["at"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < math.inf:
        raise TraceError(f"{where}: at is {at!r}, seconds from 0 on are needed.")
    prompt = _count(entry, "prompt", where, 1)
    questions = _count(entry, "questions", where, 0)
    steps = _steps(entry, where, model, random, questions)
    total = prompt + model.canvas * (1 if questions else len(steps))
    if total > model.limits.max_context:
        most = model.limits.max_context
        raise TraceError(f"{where}: {total} tokens are asked for, {model.name} takes {most}.")
    group, shared = (_count(entry, name, where, 0) for name in ("group", "shared"))
    return Arrival(float(at), prompt, steps, questions > 0, group, min(shared, prompt))


def _steps(
    entry: dict[str, object],
    where: str,
    model: Model,
    random: np.random.Generator,
    questions: int,
) -> tuple[int, ...]:
    if questions:
        return (1,) * questions
    given = entry.get("steps")
    if given is None:
        canvases = -(-_count(entry, "output", where, 1) // model.canvas)
        return tuple(draw_steps(model, canvases, random))
    if not isinstance(given, list) or not given or not all(_is_count(n, 1) for n in given):
        raise TraceError(f"{where}: steps is {given!r}, whole numbers from 1 on are needed.")
    return tuple(given)


def _count(entry: dict[str, object], name: str, where: str, least: int) -> int:
    value = entry.get(name, least if name != "output" else 0)
    if not _is_count(value, least):
        raise TraceError(f"{where}: {name} is {value!r}, a whole number from {least} on is needed.")
    assert isinstance(value, int)
    return value


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
