"""What was found as lines of text, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_backend.simulation.experiments import Point
from triton_backend.simulation.results import Summary

_COLUMNS = (
    "load", "setting", "mean", "P50", "P95", "P99", "first canvas P99", "good /s", "largest gap",
    "busy", "KV mean", "KV most",
)  # fmt: skip


def describe(summary: Summary, slo: float) -> Iterator[str]:
    """Lines on one simulation."""
    one = summary
    rate, rows = one.requests / one.seconds, one.rows / one.steps
    latencies = ("mean", one.mean), ("P50", one.p50), ("P95", one.p95), ("P99", one.p99)
    gap, step = one.largest_gap * 1e3, one.longest_step * 1e3
    yield f"requests        {one.requests} in {one.seconds:.1f} s ({rate:.2f}/s)"
    yield "latency         " + "  ".join(f"{name} {found:.3f}" for name, found in latencies) + " s"
    yield f"first canvas    P50 {one.first_canvas_p50:.3f}  P99 {one.first_canvas_p99:.3f} s"
    yield f"goodput         {one.good:.2f}/s within {slo:g} s"
    yield f"step gap        {gap:.1f} ms at most, the longest step {step:.1f} ms"
    yield f"KV pages        {one.kv_mean:.1%} in use, {one.kv_most:.1%} at most on one worker"
    yield f"preemptions     {one.preemptions}"
    yield f"prefix cache    {one.cached:.1%} of context tokens"
    yield f"executions      {one.steps} of {rows:.0f} rows, workers busy {one.busy:.0%}"
    yield f"running at once {one.most_running} on one worker"


def page_table(found: Sequence[tuple[Point, Summary]]) -> Iterator[str]:
    """Lines of a Markdown table, an empty one behind it."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for point, one in found:
        cells = (
            f"{point.rate:g}/s", point.label, f"{one.mean:.2f}", f"{one.p50:.2f}",
            f"{one.p95:.2f}", f"{one.p99:.2f}", f"{one.first_canvas_p99:.2f}", f"{one.good:.2f}",
            f"{one.largest_gap * 1e3:.0f} ms", f"{one.busy:.0%}", f"{one.kv_mean:.0%}",
            f"{one.kv_most:.0%}",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    yield ""
