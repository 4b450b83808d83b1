"""Figures of the generation benchmark, and the page and plot made of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ASKED = {
    "transformers": ">= 2",
    "transformers one by one": ">= 3",
    "transformers batch": ">= 1.3",
}


@dataclass(frozen=True)
class Point:
    """One checkpoint at one concurrency: median seconds by path, the floor, tokens written."""

    seconds: dict[str, float]
    floor: float
    tokens: int

    def share(self, path: str) -> float:
        """Share of the machine's own matmul rate that a path reaches, 1 being all of it."""
        return self.floor / self.seconds[path]

    def ratios(self) -> Iterator[tuple[str, float, str]]:
        """(name, value, what is asked of it) of every comparison."""
        fused = self.seconds["fused"]
        for path, least in ASKED.items():
            if path in self.seconds:
                yield f"{path} / fused", self.seconds[path] / fused, least
        yield "unfused / fused", self.seconds["unfused"] / fused, ""
        yield "floor / fused", self.share("fused"), ""


@dataclass
class Figures:
    """All points of one run, by (checkpoint, concurrency)."""

    points: dict[tuple[str, int], Point] = field(default_factory=dict)
    compiled: str = ""

    def add(
        self, name: str, count: int, seconds: dict[str, float], floor: float, tokens: int
    ) -> None:
        """Record one point."""
        self.points[name, count] = Point(seconds, floor, tokens)


def _plot(figures: Figures, path: Path) -> None:
    figure, axes = plt.subplots(1, len(figures.points), figsize=(4 * len(figures.points), 3.2))
    for axis, ((name, count), point) in zip(axes, figures.points.items(), strict=True):
        names = list(point.seconds)
        values = [point.tokens / point.seconds[path] for path in names]
        colours = ["#9aa5b1" if "transformers" in path else "#2f6fdf" for path in names]
        axis.barh(names, values, color=colours)
        rate = point.tokens / point.floor
        axis.axvline(rate, color="#d9534f", linestyle="--", label="matmul floor")
        axis.set_title(f"{name}, {count} at once")
        axis.set_xlabel("tokens a second, median")
        axis.invert_yaxis()
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rows(figures: Figures) -> Iterator[str]:
    yield "| checkpoint | at once | path | median s | tokens/s | share of the matmul floor |"
    yield "|---|---|---|---|---|---|"
    for (name, count), point in figures.points.items():
        for path, seconds in point.seconds.items():
            rate = point.tokens / seconds
            yield (
                f"| {name} | {count} | {path} | {seconds:.3f} | {rate:.1f} | "
                f"{point.share(path):.2f} |"
            )
    yield ""
    yield "| checkpoint | at once | ratio | value | asked (mid-size) |"
    yield "|---|---|---|---|---|"
    for (name, count), point in figures.points.items():
        for ratio, value, asked in point.ratios():
            yield f"| {name} | {count} | {ratio} | {value:.2f} | {asked} |"


def write_report(figures: Figures, directory: Path) -> Path:
    """Write generate.md and generate.png; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot(figures, directory / "generate.png")
    page = directory / "generate.md"
    head = (
        "# Block-diffusion generation: transformers against the engine\n\n"
        "fp32, prompt 128, two canvases of 32 tokens, 8 denoising steps each, nothing stops early; "
        "every path in turn in each round, medians. `mid-size` has random weights (124 M "
        "parameters, vocabulary 32,768), `demo` is the ticket checkpoint (2.5 M). The floor is "
        "torch's own matrix product at the shapes of all executions, heads included, nothing "
        "else; a share above 1 means the engine's kernels beat it.\n\n"
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}; "
        "written by `make bench-generate`.\n\n![medians](generate.png)\n\n"
    )
    tail = f"\ntransformers compiled: {figures.compiled}\n" if figures.compiled else ""
    page.write_text(head + "\n".join(_rows(figures)) + "\n" + tail, encoding="utf-8")
    return page
