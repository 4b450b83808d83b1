"""What the benchmark pages share: a point's comparisons, bars per path, the machine in words."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt


@dataclass(frozen=True)
class Point:
    """Median seconds by path in one setting, and those of torch's own products alone."""

    seconds: dict[str, float]
    floor: float

    def share(self, path: str) -> float:
        """Share of the machine's own matmul rate that a path reaches, 1 being all of it."""
        return self.floor / self.seconds[path]

    def over(self, path: str, asked: str = "") -> tuple[str, float, str]:
        """How many times the fused path's seconds another path takes, with what is asked of it."""
        return f"{path} / fused", self.seconds[path] / self.seconds["fused"], asked


@dataclass(frozen=True)
class Panel:
    """One set of bars: a value per path, and the same of the floor."""

    title: str
    values: Mapping[str, float]
    floor: float


def draw_bars(panels: Sequence[Panel], label: str, path: Path) -> None:
    """A panel beside the other, transformers grey, the floor a dashed line."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2))
    for axis, panel in zip(axes, panels, strict=True):
        colours = ["#9aa5b1" if "transformers" in name else "#2f6fdf" for name in panel.values]
        axis.barh(list(panel.values), list(panel.values.values()), color=colours)
        axis.axvline(panel.floor, color="#d9534f", linestyle="--", label="matmul floor")
        axis.set_title(panel.title)
        axis.set_xlabel(label)
        axis.invert_yaxis()
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(columns: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    """Lines of a Markdown table, an empty one behind it."""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def machine() -> str:
    """The machine that the figures are of."""
    return (
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    )
