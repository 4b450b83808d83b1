"""Which numbers the server shows, under which names; values come from the loop's own objects.

The `nv_trt_llm_*` names and labels are those of TensorRT-LLM's backend, so that tools made for it
work; `dg_*` are this project's own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from plugins.spec import Phase
from triton_backend.core import SplitReason
from triton_backend.scheduler import Scheduler

STEP_SECONDS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Family:
    """One metric family; `kind` is counter, gauge or histogram, `label` names its one label."""

    name: str
    kind: str
    help: str
    label: str = ""


REQUESTS = Family("nv_trt_llm_request_metrics", "gauge", "Requests by state", "request_type")
PAGES = Family("nv_trt_llm_kv_cache_block_metrics", "gauge", "KV pages", "kv_cache_block_type")
BATCH = Family(
    "nv_trt_llm_inflight_batcher_metrics",
    "gauge",
    "The execution that runs now",
    "inflight_batcher_specific_metric",
)
GENERAL = Family("nv_trt_llm_general_metrics", "gauge", "Executions, and when", "general_type")
STEPS = Family("dg_steps_total", "counter", "Executions of the engine, shared by requests")
ROWS = Family("dg_rows_total", "counter", "Rows computed, by phase", "phase")
FUSED = Family(
    "dg_executions_fused_total", "counter", "Requests whose canvas joined the end of its prompt"
)
SPLIT = Family(
    "dg_executions_split_total", "counter", "Requests whose canvas ran after its prompt", "reason"
)
OUTCOMES = Family("dg_requests_total", "counter", "Requests by how they ended", "outcome")
TOKENS = Family("dg_generated_tokens_total", "counter", "Tokens of finished generations")
CANVASES = Family("dg_generated_canvases_total", "counter", "Canvases of finished generations")
PREEMPTIONS = Family(
    "dg_preemptions_total", "counter", "Times a running request gave its KV pages to another"
)
EXPIRED = Family("dg_queue_timeouts_total", "counter", "Requests that waited too long to start")
PREFIXES = Family(
    "dg_prefix_lookups_total", "counter", "Contexts begun, by what was known", "found"
)
PREFIX_TOKENS = Family(
    "dg_prefix_tokens_total", "counter", "Tokens of contexts begun, by where they came from", "from"
)
SLIDING_PAGES = Family(
    "dg_kv_sliding_pages", "gauge", "KV pages of the sliding-window layers", "state"
)
KV_WAITS = Family("dg_kv_waits_total", "counter", "Requests held back for want of KV pages")
KV_WAIT_SECONDS = Family("dg_kv_wait_seconds_total", "counter", "Seconds they were held back")
STEP_SECONDS = Family("dg_step_seconds", "histogram", "Seconds of one execution")
READY = Family("dg_engine_ready", "gauge", "1 while the engine takes requests")

Values = dict[tuple[Family, str], float]


class Metric(Protocol):
    """A metric as the server gives it."""

    def increment(self, value: float) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, value: float) -> None: ...


def values(scheduler: Scheduler, ready: bool, max_requests: int) -> Values:
    """All numbers of now, but the histogram's."""
    counters, kv = scheduler.counters, scheduler.kv
    pool = kv.full
    found: dict[Family, Mapping[str, float]] = {
        REQUESTS: {
            "active": scheduler.num_running + scheduler.num_waiting,
            "max": max_requests,
            "scheduled": counters.scheduled,
            "context": counters.context_requests,
            "waiting": scheduler.num_waiting,
        },
        PAGES: {
            "max": pool.total,
            "free": pool.num_free,
            "used": pool.num_used,
            "reused": pool.num_idle,
            "tokens_per": kv.shape.page_size,
            "fraction": pool.num_used / pool.total,
        },
        SLIDING_PAGES: {
            "max": kv.sliding.total,
            "free": kv.sliding.num_free,
            "used": kv.sliding.num_used,
            "cached": kv.sliding.num_idle,
        },
        BATCH: {
            "total_context_tokens": counters.context_tokens,
            "generation_requests": counters.denoise_requests,
            "micro_batch_id": 0,
            "paused_requests": scheduler.num_preempted,
        },
        GENERAL: {"iteration_counter": counters.executions, "timestamp": int(time.time())},
        STEPS: {"": counters.executions},
        ROWS: {phase.name.lower(): counters.rows[phase] for phase in Phase},
        FUSED: {"": counters.fused},
        SPLIT: {reason.value: counters.split[reason] for reason in SplitReason},
        OUTCOMES: {
            "ok": counters.ok,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
        },
        TOKENS: {"": counters.written_tokens},
        CANVASES: {"": counters.written_canvases},
        PREEMPTIONS: {"": counters.preemptions},
        EXPIRED: {"": counters.expired},
        PREFIXES: {"hit": counters.prefix_hits, "miss": counters.prefix_misses},
        PREFIX_TOKENS: {
            "cached": counters.prefix_tokens,
            "computed": counters.context_started - counters.prefix_tokens,
        },
        KV_WAITS: {"": counters.kv_waits},
        KV_WAIT_SECONDS: {"": counters.kv_wait_seconds},
        READY: {"": int(ready)},
    }
    return {
        (family, label): value
        for family, labelled in found.items()
        for label, value in labelled.items()
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
        self._histogram = make(STEP_SECONDS, "")
        # Whatever it keeps must outlive the metrics, so it comes last.
        self._make = make

    def __call__(self, step_seconds: deque[float]) -> None:
        """Shows what has changed, and takes the new observations; trouble is logged only."""
        try:
            for entry, value in self._read().items():
                self._update(entry, value)
            while step_seconds:
                self._histogram.observe(step_seconds.popleft())
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
