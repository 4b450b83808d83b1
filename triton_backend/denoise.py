"""One denoising step of one canvas, after the head: pure functions from state to state.

Semantics: transformers' generation for DiffusionGemma. Steps count up here; the oracle counts down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plugins.spec import Stream
from triton_backend.accept import AcceptRule, Statistics
from triton_backend.noise import uniform_ids
from triton_backend.runner import DenoiseOutput

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Denoising:
    """How a canvas is denoised: the checkpoint's generation_config, with what a request changed.

    `greedy` takes the most likely token as candidate instead of a draw. `step_cap` ends a canvas
    earlier than its schedule of `max_steps`, 0 does not.
    """

    seed: int
    max_steps: int
    t_min: float
    t_max: float
    rule: AcceptRule
    stability_threshold: int
    confidence_threshold: float
    greedy: bool = False
    step_cap: int = 0

    def eased(self, effort: float) -> Denoising:
        """The same with a share of the steps: accepting more, and content with less, in between."""
        if effort == 1:
            return self
        return replace(
            self,
            step_cap=max(1, round(self.max_steps * effort)),
            rule=self.rule.eased(effort),
            confidence_threshold=self.confidence_threshold / effort,
        )

    def temperature(self, step: int) -> np.float32:
        """Temperature of step 0, 1, ...: linear from t_max down, rounded as the oracle rounds."""
        return _temperature(self.t_min, self.t_max, self.max_steps, step)


@dataclass(frozen=True, eq=False)
class CanvasState:
    """A canvas of W tokens between two steps.

    `ids` is what the next step denoises; `argmax`, `log_probs` and `entropy` are what the last one
    said; `soft` is the runner's own, its self-conditioning vectors, None before the first step.
    """

    ids: Ids  # [W]
    pinned: NDArray[np.bool_]  # [W]
    steps: int = 0
    history: tuple[Ids, ...] = ()
    argmax: Ids | None = None  # [W]
    log_probs: NDArray[np.float32] | None = None  # [W], of argmax, at temperature 1
    entropy: NDArray[np.float32] | None = None  # [W]
    soft: Any = None
    finished: bool = False


@lru_cache(maxsize=4096)
def _temperature(t_min: float, t_max: float, max_steps: int, step: int) -> np.float32:
    """Remembered, as every canvas of an execution asks for it."""
    left = np.float32(max_steps - step) / np.float32(max_steps)
    return np.float32(t_min) + np.float32(t_max - t_min) * left


def new_canvas(
    denoising: Denoising,
    positions: Ids,
    vocab_size: int,
    given: tuple[int, ...] = (),
    pinned: tuple[int, ...] = (),
) -> CanvasState:
    """A canvas before its first step: the given ids first, uniform noise behind them."""
    ids = uniform_ids(denoising.seed, Stream.CANVAS, positions, 0, vocab_size)
    ids[: len(given)] = given
    mask = np.zeros(len(ids), np.bool_)
    mask[list(pinned)] = True
    return CanvasState(ids, mask)


def step(
    state: CanvasState, output: DenoiseOutput, denoising: Denoising, positions: Ids, vocab_size: int
) -> CanvasState:
    """The state after one step, from the head's rows [W] of this canvas.

    Pinned positions keep their token, in the committed canvas too, and neither acceptance nor the
    stop rule looks at them.
    """
    free = ~state.pinned
    candidates = output.argmax if denoising.greedy else output.candidate
    confidence = np.exp(output.log_prob if denoising.greedy else output.candidate_log_prob)
    accepted = state.pinned.copy()
    accepted[free] = denoising.rule.accept(Statistics(output.entropy[free], confidence[free]))
    fresh = uniform_ids(denoising.seed, Stream.RENOISE, positions, state.steps, vocab_size)
    kept = np.where(state.pinned, state.ids, candidates)
    argmax = np.where(state.pinned, state.ids, output.argmax)
    keep = denoising.stability_threshold
    stop = _is_stable(argmax, state.history, keep) and _is_confident(output, free, denoising)
    return CanvasState(
        ids=np.where(accepted, kept, fresh),
        pinned=state.pinned,
        steps=state.steps + 1,
        history=(*state.history, argmax)[-keep:] if keep else (),
        argmax=argmax,
        log_probs=output.log_prob,
        entropy=output.entropy,
        soft=output.soft,
        finished=stop or state.steps + 1 >= (denoising.step_cap or denoising.max_steps),
    )


def _is_stable(argmax: Ids, history: tuple[Ids, ...], threshold: int) -> bool:
    """Equal to each of the last `threshold` argmax canvases; fewer so far are not enough."""
    same = len(history) == threshold
    return same and all(np.array_equal(argmax, earlier) for earlier in history)


def _is_confident(output: DenoiseOutput, free: NDArray[np.bool_], denoising: Denoising) -> bool:
    mean = output.entropy[free].mean(dtype=np.float32)
    return bool(mean < np.float32(denoising.confidence_threshold))
