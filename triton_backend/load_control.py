"""Chooses how much denoising each generation gets, so that replies keep to a target of seconds.

Off unless the policy names a target. Knows requests and what executions took; the rule by which
efforts are chosen is `triton_backend.effort`'s.
"""

from __future__ import annotations

from collections.abc import Iterable

from triton_backend.core import Generation, StepResult
from triton_backend.effort import Claim, caps, demand, is_hopeless
from triton_backend.progress import Progress

EFFORTS = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25)
"""Shares of the asked denoising steps, from all of them down; the least is what a floor bounds."""

INTERVAL = 1.0
"""Seconds between two choices."""

_WEIGHT = 0.1  # of a new observation


class LoadControl:
    """One server's observations and choices; `seconds` is the target from arrival to reply."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows_per_second = 0.0
        self._fastest = float("inf")
        self._share = 1.0  # of its steps that a canvas takes, at full effort
        self._chosen = -float("inf")

    def observe(self, rows: int, result: StepResult) -> None:
        """An execution has run."""
        seconds = max(result.seconds, 1e-9)
        self._fastest = min(self._fastest, seconds)
        rate = rows / seconds
        before = self._rows_per_second or rate
        self._rows_per_second = before + _WEIGHT * (rate - before)

    def observe_canvas(self, steps: int, most: int) -> None:
        """A canvas at full effort has taken so many of its steps."""
        self._share += _WEIGHT * (steps / most - self._share)

    def choose(self, live: Iterable[Progress], now: float) -> None:
        """Sets the effort of every generation, most progressed first; at most once a second."""
        if now - self._chosen < INTERVAL or not self._rows_per_second:
            return
        self._chosen = now
        writing = [one for one in live if one.request.generation is not None]
        writing.sort(key=lambda progress: -progress.work.share_done)
        claims = [self._claim(progress, now) for progress in writing]
        allowed = caps(claims, self._rows_per_second * self._seconds)
        for progress, claim, cap in zip(writing, claims, allowed, strict=True):
            levels = _levels(progress)
            left = self._seconds - (now - progress.arrived)
            pace = self._rows_per_second / len(writing)
            fitting = (n for n in range(cap, len(levels)) if claim.demands[n] <= left * pace)
            progress.work.effort = levels[next(fitting, len(levels) - 1)]

    def _claim(self, progress: Progress, now: float) -> Claim:
        asked = progress.request.generation
        assert asked is not None
        left = progress.remaining if progress.is_running else len(progress.work.context_ids)
        canvases = max(1.0, (1 - progress.work.share_done) * asked.max_tokens / asked.canvas_length)
        steps = [self._steps(asked, level) * canvases for level in _levels(progress)]
        demands = tuple(demand(left, n, asked.canvas_length, canvases - 1) for n in steps)
        time_left = self._seconds - (now - progress.arrived)
        return Claim(demands, is_hopeless(time_left, self._fastest, steps[-1]))

    def _steps(self, asked: Generation, level: float) -> float:
        """Steps that a canvas is likely to take."""
        return max(1.0, asked.denoising.max_steps * level * self._share)


def _levels(progress: Progress) -> tuple[float, ...]:
    """Efforts that a request allows, each as many as all others have."""
    asked = progress.request.generation
    assert asked is not None
    return tuple(max(level, asked.effort_floor) for level in EFFORTS)
