"""Figures of the read benchmark, and the page and plot made of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt

MOST_REST_MIB = 256
"""What an engine process may hold beside weights and pool after a batch of 16 reads, in MiB."""


@dataclass(frozen=True)
class Point:
    """One dtype at one concurrency: median seconds by path, and the machine's floor."""

    seconds: dict[str, float]
    floor: float
    flops: int

    def share(self, path: str) -> float:
        """Share of the machine's own matmul rate that a path reaches, 1 being all of it."""
        return self.floor / self.seconds[path]

    def ratios(self) -> Iterator[tuple[str, float, str]]:
        """(name, value, what is asked of it) of every comparison."""
        fused, split = self.seconds["fused"], self.seconds["split"]
        if "transformers" in self.seconds:
            yield "transformers / fused", self.seconds["transformers"] / fused, ">= 1.9"
            yield "fused / split", fused / split, "<= 0.85"
            yield "floor / fused", self.share("fused"), ">= 0.7"
            return
        yield "transformers batch / fused", self.seconds["transformers batch"] / fused, ">= 1.3"
        yield "transformers one by one / fused", self.seconds["transformers one by one"] / fused, ""
        yield "fused / split", fused / split, ""
        yield "floor / fused", self.share("fused"), ""


@dataclass
class Figures:
    """All points of one run, by (dtype, concurrency)."""

    points: dict[tuple[str, int], Point] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(
        self, dtype: str, count: int, seconds: dict[str, float], floor: float, flops: int
    ) -> None:
        """Record one point."""
        self.points[dtype, count] = Point(seconds, floor, flops)


def _plot(figures: Figures, path: Path) -> None:
    figure, axes = plt.subplots(1, len(figures.points), figsize=(4 * len(figures.points), 3.2))
    for axis, ((dtype, count), point) in zip(axes, figures.points.items(), strict=True):
        names = list(point.seconds)
        values = [1e3 * point.seconds[name] for name in names]
        colours = ["#9aa5b1" if "transformers" in name else "#2f6fdf" for name in names]
        axis.barh(names, values, color=colours)
        axis.axvline(1e3 * point.floor, color="#d9534f", linestyle="--", label="matmul floor")
        axis.set_title(f"{dtype}, {count} at once")
        axis.set_xlabel("ms, median")
        axis.invert_yaxis()
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rows(figures: Figures) -> Iterator[str]:
    yield "| dtype | at once | path | median ms | share of the matmul floor |"
    yield "|---|---|---|---|---|"
    for (dtype, count), point in figures.points.items():
        for path, seconds in point.seconds.items():
            yield f"| {dtype} | {count} | {path} | {1e3 * seconds:.1f} | {point.share(path):.2f} |"
    yield ""
    yield "| dtype | at once | ratio | value | asked (fp32) |"
    yield "|---|---|---|---|---|"
    for (dtype, count), point in figures.points.items():
        for name, value, asked in point.ratios():
            yield f"| {dtype} | {count} | {name} | {value:.2f} | {asked} |"
    yield ""
    asked = f"everything else MiB (<= {MOST_REST_MIB})"
    yield f"| dtype | weights MiB | page pool MiB | {asked} | at its peak |"
    yield "|---|---|---|---|---|"
    for dtype, found in figures.memory.items():
        sizes = (found[name] / 2**20 for name in ("weights", "pool", "rest", "peak_rest"))
        yield f"| {dtype} | " + " | ".join(f"{size:.0f}" for size in sizes) + " |"


def write_report(figures: Figures, directory: Path) -> Path:
    """Write read.md and read.png; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot(figures, directory / "read.png")
    page = directory / "read.md"
    head = (
        "# One structured read: transformers against the engine\n\n"
        "Mid-size random checkpoint (124 M parameters), prompt 128, canvas 32, three slots; every "
        "path in turn in each round, medians. The floor is torch's own matrix product at the same "
        "shapes, nothing else; a share above 1 means the engine's kernels beat it.\n\n"
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}; "
        "written by `make bench-read`.\n\n![medians](read.png)\n\n"
    )
    page.write_text(head + "\n".join(_rows(figures)) + "\n", encoding="utf-8")
    return page
