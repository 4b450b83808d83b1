"""Brings the numbers on the server's page up to date; values come from the loop's own objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from plugins.spec import Phase
from triton_backend.core import SplitReason
from triton_backend.counters import Counters
from triton_backend.metric_families import (
    BATCH,
    CANVASES,
    EXPIRED,
    FIRST_SECONDS,
    FUSED,
    GENERAL,
    KV_WAIT_SECONDS,
    KV_WAITS,
    LIMITED,
    OUTCOMES,
    PAGES,
    PREEMPTIONS,
    PREFIX_TOKENS,
    PREFIXES,
    QUEUE_SECONDS,
    READS,
    READY,
    REQUESTS,
    ROWS,
    SLIDING_PAGES,
    SPLIT,
    STEP_SECONDS,
    STEPS,
    SWAPPED,
    TOKENS,
    Family,
)
from triton_backend.scheduler import Scheduler

_log = logging.getLogger(__name__)


Values = dict[tuple[Family, str], float]


class Metric(Protocol):
    """A metric as the server gives it."""

    def increment(self, value: float) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, value: float) -> None: ...


def values(scheduler: Scheduler, ready: bool, max_requests: int) -> Values:
    """All numbers of now, but the histograms'."""
    found: dict[Family, Mapping[str, float]] = {
        **_requests(scheduler, max_requests),
        **_pages(scheduler),
        **_totals(scheduler.counters),
        READY: {"": int(ready)},
    }
    return {
        (family, label): value
        for family, labelled in found.items()
        for label, value in labelled.items()
    }


def _requests(scheduler: Scheduler, most: int) -> dict[Family, Mapping[str, float]]:
    """Who is here, and what runs now."""
    counters = scheduler.counters
    return {
        REQUESTS: {
            "active": scheduler.num_running + scheduler.num_waiting,
            "max": most,
            "scheduled": counters.scheduled,
            "context": counters.context_requests,
            "waiting": scheduler.num_waiting,
        },
        BATCH: {
            "total_context_tokens": counters.context_tokens,
            "generation_requests": counters.denoise_requests,
            "micro_batch_id": 0,
            "paused_requests": scheduler.num_preempted,
        },
        GENERAL: {"iteration_counter": counters.executions, "timestamp": int(time.time())},
    }


def _pages(scheduler: Scheduler) -> dict[Family, Mapping[str, float]]:
    """The KV cache."""
    full, sliding = scheduler.kv.full, scheduler.kv.sliding
    return {
        PAGES: {
            "max": full.total,
            "free": full.num_free,
            "used": full.num_used,
            "reused": full.num_idle,
            "tokens_per": scheduler.kv.shape.page_size,
            "fraction": full.num_used / full.total,
        },
        SLIDING_PAGES: {
            "max": sliding.total,
            "free": sliding.num_free,
            "used": sliding.num_used,
            "cached": sliding.num_idle,
        },
    }


def _totals(counters: Counters) -> dict[Family, Mapping[str, float]]:
    """What has happened since the start."""
    return {
        STEPS: {"": counters.executions},
        ROWS: {phase.name.lower(): counters.rows[phase] for phase in Phase},
        FUSED: {"": counters.fused},
        SPLIT: {reason.value: counters.split[reason] for reason in SplitReason},
        OUTCOMES: {
            "ok": counters.ok,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
        },
        READS: {"": counters.read_canvases},
        TOKENS: {"": counters.written_tokens},
        CANVASES: {"": counters.written_canvases},
        LIMITED: {"": counters.limited},
        PREEMPTIONS: {"": counters.preemptions},
        SWAPPED: {"": counters.swapped_pages},
        EXPIRED: {"": counters.expired},
        PREFIXES: {"hit": counters.prefix_hits, "miss": counters.prefix_misses},
        PREFIX_TOKENS: {
            "cached": counters.prefix_tokens,
            "computed": counters.context_started - counters.prefix_tokens,
        },
        KV_WAITS: {"": counters.kv_waits},
        KV_WAIT_SECONDS: {"": counters.kv_wait_seconds},
    }


class Publisher:
    """Brings the server's metrics up to date when called; always call it on one thread.

    `make` creates the metric of a family and label value; all are made at once, so that each is
    there at 0. `read` gives the current values.
    """

    def __init__(self, make: Callable[[Family, str], Metric], read: Callable[[], Values]) -> None:
        self._read = read
        self._shown = dict.fromkeys(read(), 0.0)
        self._metrics = {entry: make(*entry) for entry in self._shown}
        families = (STEP_SECONDS, QUEUE_SECONDS, FIRST_SECONDS)
        self._histograms = [make(family, "") for family in families]
        # Whatever it keeps must outlive the metrics, so it comes last.
        self._make = make

    def __call__(self, counters: Counters) -> None:
        """Shows what has changed, and takes the new observations; trouble is logged only."""
        observed = (counters.step_seconds, counters.queue_seconds, counters.first_seconds)
        try:
            for entry, value in self._read().items():
                self._update(entry, value)
            for histogram, seconds in zip(self._histograms, observed, strict=True):
                while seconds:
                    histogram.observe(seconds.popleft())
        except Exception:  # noqa: BLE001 - numbers on a page are not worth an engine
            _log.exception("metrics could not be published")

    def _update(self, entry: tuple[Family, str], value: float) -> None:
        before = self._shown[entry]
        if value == before:
            return
        if entry[0].kind == "counter":
            self._metrics[entry].increment(value - before)
        else:
            self._metrics[entry].set(value)
        self._shown[entry] = value
