"""Runs the report's simulations and writes the page `simulation.md` with its plots."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from triton_backend.policy import Prefill
from triton_backend.simulation.experiments import (
    FIVE_TO_THREE,
    ONE_TO_SEVEN,
    SEEDS,
    Point,
    budget_sweep,
    gemma,
    llada,
    placements,
    prefills,
    run_all,
)
from triton_backend.simulation.plots import draw_lines
from triton_backend.simulation.report_text import (
    BUDGETS,
    CLOSING,
    GEMMA_PLACEMENTS,
    OPENING,
    PLACEMENTS,
    PREFILLS,
)
from triton_backend.simulation.results import Summary
from triton_backend.simulation.setting import H100_LLADA
from triton_backend.simulation.tables import page_table

Found = Sequence[tuple[Point, Summary]]
_RATES = (3, 5, 6)


def points(requests: int) -> dict[str, list[Point]]:
    """All simulations, by section of the page."""
    blocks = [llada(fleet, 1024) for fleet in FIVE_TO_THREE]
    canvases = [gemma(fleet, 1024, Prefill.CHUNKED) for fleet in ONE_TO_SEVEN]
    return {
        "budgets": budget_sweep((4, 6), requests),
        "placements": placements(blocks, "sharegpt", _RATES, requests),
        "arxiv": placements(blocks, "arxiv", (1, 2), requests // 2),
        "prefills": prefills(2048, (2.8, 3.2, 3.6), requests),
        "gemma": placements(canvases, "sharegpt", (4, 8, 12), requests),
    }


def write_report(
    directory: Path, processes: int, report: Callable[[str], None], requests: int = 300
) -> None:
    """Writes `simulation.md` and its plots into a directory, and prints the tables."""
    found = run_all(points(requests), SEEDS, processes, report)
    plots = directory / "simulation"
    plots.mkdir(parents=True, exist_ok=True)
    _draw(found, plots)
    page = "\n".join(_page(found, requests))
    (directory / "simulation.md").write_text(page, encoding="utf-8")
    for name, measured in found.items():
        sys.stdout.write(f"{name}\n" + "\n".join(page_table(measured)) + "\n")
    for line in verdicts(found):
        sys.stdout.write(line + "\n")


def verdicts(found: dict[str, list[tuple[Point, Summary]]]) -> Iterator[str]:
    """Whether each expected order came out, at every load it is expected at."""
    nearly_full = [(point, one) for point, one in found["budgets"] if point.rate == _RATES[-1]]
    best = min(nearly_full, key=lambda pair: pair[1].p99)[0].label
    yield f"- lowest P99 of the four budgets near saturation: {best} (expected t = 1024)"
    by_load = {(point.rate, point.label): one for point, one in found["placements"]}
    worse = [rate for rate in _RATES if by_load[rate, "5P3C"].mean > by_load[rate, "5P3D"].mean]
    held = "at every load" if not worse else f"not at {worse} requests a second"
    yield f"- mean of 5P3C no higher than that of 5P3D: {held}"
    gaps = {(point.rate, point.label): one.largest_gap for point, one in found["prefills"]}
    rates = sorted({rate for rate, _ in gaps})
    kinds = (Prefill.CHUNKED, Prefill.DEFICIT, Prefill.FIRST)
    ordered = all(
        gaps[rate, kinds[0].value] < gaps[rate, kinds[1].value] < gaps[rate, kinds[2].value]
        for rate in rates
    )
    yield (
        "- largest step gap chunked < deficit < first: "
        + ("at every load" if ordered else "not at every load")
    )
    limit = H100_LLADA(2048)
    most = max(gaps[rate, kinds[0].value] for rate in rates)
    yield f"- largest step gap with chunks: {most * 1e3:.1f} ms, T(budget) {limit * 1e3:.1f} ms"


def _draw(found: dict[str, list[tuple[Point, Summary]]], plots: Path) -> None:
    draw_lines(
        [
            ("P99 latency, 8 colocated workers", found["budgets"], lambda one: one.p99),
            ("mean latency", found["budgets"], lambda one: one.mean),
        ],
        plots / "budgets.png",
    )
    draw_lines(
        [
            ("mean latency, ShareGPT lengths", found["placements"], lambda one: one.mean),
            ("mean latency, arXiv lengths", found["arxiv"], lambda one: one.mean),
        ],
        plots / "placements.png",
    )
    draw_lines(
        [
            ("largest step gap", found["prefills"], lambda one: one.largest_gap),
            ("P99 latency", found["prefills"], lambda one: one.p99),
        ],
        plots / "prefills.png",
    )
    draw_lines(
        [
            ("mean latency", found["gemma"], lambda one: one.mean),
            ("P99 time to the first canvas", found["gemma"], lambda one: one.first_canvas_p99),
        ],
        plots / "gemma.png",
    )


def _page(found: dict[str, list[tuple[Point, Summary]]], requests: int) -> Iterator[str]:
    yield OPENING.format(requests=requests, seeds=len(SEEDS))
    yield from verdicts(found)
    for text, name, plot in (
        (BUDGETS, "budgets", "budgets"),
        (PLACEMENTS, "placements", "placements"),
        ("", "arxiv", ""),
        (PREFILLS, "prefills", "prefills"),
        (GEMMA_PLACEMENTS, "gemma", "gemma"),
    ):
        yield text
        if plot:
            yield f"![{plot}](simulation/{plot}.png)\n"
        yield from page_table(found[name])
    yield CLOSING
