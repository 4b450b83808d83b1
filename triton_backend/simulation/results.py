"""What a simulation found: latencies one number a request, and totals of all workers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_backend.simulation.job import Job
from triton_backend.simulation.worker import Worker


@dataclass
class Latencies:
    """Seconds of every finished request, in order of its end: 16 bytes each."""

    total: array[float] = field(default_factory=lambda: array("d"))
    first_canvas: array[float] = field(default_factory=lambda: array("d"))

    def add(self, job: Job, now: float) -> None:
        """A request is done."""
        arrived = job.arrival.at
        self.total.append(now - arrived)
        first = now if job.first_canvas is None else job.first_canvas
        self.first_canvas.append(first - arrived)


@dataclass(frozen=True)
class Summary:
    """Of one simulation; seconds, shares from 0 to 1, and requests a second where it says so.

    `largest_gap` is the longest time that a request which had begun to denoise was in no
    execution; `good` is requests a second that took no longer than the limit.
    """

    requests: int
    mean: float
    p50: float
    p95: float
    p99: float
    first_canvas_p50: float
    first_canvas_p99: float
    good: float
    largest_gap: float
    longest_step: float
    most_running: int
    busy: float
    kv_mean: float
    kv_most: float
    preemptions: int
    cached: float
    steps: int
    rows: int
    seconds: float


def summarise(
    latencies: Latencies, workers: Sequence[Worker], seconds: float, slo: float, warm_up: float
) -> Summary:
    """A summary; the first `warm_up` share of the requests counts in no latency."""
    skipped = int(len(latencies.total) * warm_up)
    total = np.frombuffer(latencies.total)[skipped:]
    first = np.frombuffer(latencies.first_canvas)[skipped:]
    usage = [worker.usage for worker in workers]
    counters = [worker.counters for worker in workers]
    pages = sum(worker.kv.shape.full_pages for worker in workers)
    started = sum(one.context_started for one in counters)
    return Summary(
        requests=len(latencies.total),
        mean=float(total.mean()),
        p50=float(np.percentile(total, 50)),
        p95=float(np.percentile(total, 95)),
        p99=float(np.percentile(total, 99)),
        first_canvas_p50=float(np.percentile(first, 50)),
        first_canvas_p99=float(np.percentile(first, 99)),
        good=float((np.frombuffer(latencies.total) <= slo).sum()) / seconds,
        largest_gap=max(one.largest_gap for one in usage),
        longest_step=max(one.longest_step for one in usage),
        most_running=max(one.most_running for one in usage),
        busy=sum(one.busy for one in usage) / seconds / len(workers),
        kv_mean=sum(one.page_seconds for one in usage) / seconds / pages,
        kv_most=max(worker.usage.most_pages / worker.kv.shape.full_pages for worker in workers),
        preemptions=sum(one.preemptions for one in counters),
        cached=sum(one.prefix_tokens for one in counters) / started if started else 0.0,
        steps=sum(one.executions for one in counters),
        rows=sum(sum(one.rows.values()) for one in counters),
        seconds=seconds,
    )
