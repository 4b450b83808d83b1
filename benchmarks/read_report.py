"""Figures of the read benchmark, and the page and plot made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Panel, Point, draw_bars, machine, table

MOST_REST_MIB = 256
"""What an engine process may hold beside weights and pool after a batch of 16 reads, in MiB."""

HEAD = """# One structured read: transformers against the engine

Mid-size random checkpoint (124 M parameters), prompt 128, canvas 32, three slots; every path in
turn in each round, medians. The floor is torch's own matrix product at the same shapes, nothing
else; a share above 1 means the engine's kernels beat it.

{machine}; written by `make bench-read`.

![medians](read.png)

"""


@dataclass(frozen=True)
class Reading(Point):
    """One dtype at one concurrency, and how many operations its products take."""

    flops: int

    def ratios(self) -> Iterator[tuple[str, float, str]]:
        """(name, value, what is asked of it) of every comparison."""
        alone = "transformers" in self.seconds
        if alone:
            yield self.over("transformers", ">= 1.9")
        else:
            yield self.over("transformers batch", ">= 1.3")
            yield self.over("transformers one by one")
        split = self.seconds["fused"] / self.seconds["split"]
        yield "fused / split", split, "<= 0.85" if alone else ""
        yield "floor / fused", self.share("fused"), ">= 0.7" if alone else ""


@dataclass
class Figures:
    """All points of one run, by (dtype, concurrency)."""

    points: dict[tuple[str, int], Reading] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)


def _rows(figures: Figures) -> Iterator[str]:
    points = figures.points.items()
    yield from table(
        ("dtype", "at once", "path", "median ms", "share of the matmul floor"),
        (
            (*where, path, f"{1e3 * seconds:.1f}", f"{point.share(path):.2f}")
            for where, point in points
            for path, seconds in point.seconds.items()
        ),
    )
    yield from table(
        ("dtype", "at once", "ratio", "value", "asked (fp32)"),
        (
            (*where, name, f"{value:.2f}", asked)
            for where, point in points
            for name, value, asked in point.ratios()
        ),
    )
    rest = f"everything else MiB (<= {MOST_REST_MIB})"
    sizes = ("weights", "pool", "rest", "peak_rest")
    yield from table(
        ("dtype", "weights MiB", "page pool MiB", rest, "at its peak"),
        (
            (dtype, *(f"{found[name] / 2**20:.0f}" for name in sizes))
            for dtype, found in figures.memory.items()
        ),
    )


def write_report(figures: Figures, directory: Path) -> Path:
    """Write read.md and read.png; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    panels = [
        Panel(
            f"{dtype}, {count} at once",
            {path: 1e3 * seconds for path, seconds in point.seconds.items()},
            1e3 * point.floor,
        )
        for (dtype, count), point in figures.points.items()
    ]
    draw_bars(panels, "ms, median", directory / "read.png")
    page = directory / "read.md"
    text = HEAD.format(machine=machine()) + "\n".join(_rows(figures))
    page.write_text(text.rstrip() + "\n", encoding="utf-8")
    return page
