"""Figures of the generation benchmark, and the page and plot made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Panel, Point, draw_bars, machine, table

ASKED = {
    "transformers": ">= 2",
    "transformers one by one": ">= 3",
    "transformers batch": ">= 1.3",
}
HEAD = """# Block-diffusion generation: transformers against the engine

fp32, prompt 128, two canvases of 32 tokens, 8 denoising steps each, nothing stops early; every path
in turn in each round, medians. `mid-size` has random weights (124 M parameters, vocabulary 32,768),
`demo` is the ticket checkpoint (2.5 M). The floor is torch's own matrix product at the shapes of
all executions, heads included, nothing else; a share above 1 means the engine's kernels beat it.

{machine}; written by `make bench-generate`.

![medians](generate.png)

"""


@dataclass(frozen=True)
class Writing(Point):
    """One checkpoint at one concurrency, and how many tokens every path wrote."""

    tokens: int

    def rate(self, path: str) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds[path]

    def ratios(self) -> Iterator[tuple[str, float, str]]:
        """(name, value, what is asked of it) of every comparison."""
        for path, least in ASKED.items():
            if path in self.seconds:
                yield self.over(path, least)
        yield self.over("unfused")
        yield "floor / fused", self.share("fused"), ""


@dataclass
class Figures:
    """All points of one run, by (checkpoint, concurrency)."""

    points: dict[tuple[str, int], Writing] = field(default_factory=dict)
    compiled: str = ""


def _rows(figures: Figures) -> Iterator[str]:
    points = figures.points.items()
    yield from table(
        ("checkpoint", "at once", "path", "median s", "tokens/s", "share of the matmul floor"),
        (
            (*where, path, f"{seconds:.3f}", f"{point.rate(path):.1f}", f"{point.share(path):.2f}")
            for where, point in points
            for path, seconds in point.seconds.items()
        ),
    )
    yield from table(
        ("checkpoint", "at once", "ratio", "value", "asked (mid-size)"),
        (
            (*where, ratio, f"{value:.2f}", asked)
            for where, point in points
            for ratio, value, asked in point.ratios()
        ),
    )
    if figures.compiled:
        yield f"transformers compiled, mid-size: {figures.compiled}\n"


def write_report(figures: Figures, directory: Path) -> Path:
    """Write generate.md and generate.png; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    panels = [
        Panel(
            f"{name}, {count} at once",
            {path: point.rate(path) for path in point.seconds},
            point.tokens / point.floor,
        )
        for (name, count), point in figures.points.items()
    ]
    draw_bars(panels, "tokens a second, median", directory / "generate.png")
    page = directory / "generate.md"
    text = HEAD.format(machine=machine()) + "\n".join(_rows(figures))
    page.write_text(text.rstrip() + "\n", encoding="utf-8")
    return page
