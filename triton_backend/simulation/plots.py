"""Plots of the report, by matplotlib, which only developers have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

from triton_backend.simulation.experiments import Point
from triton_backend.simulation.results import Summary

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Found = Sequence[tuple[Point, Summary]]


def draw_lines(panels: Sequence[tuple[str, Found, Callable[[Summary], float]]], path: Path) -> None:
    """A panel beside the other, each a value by load, one line a label."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.4), squeeze=False)
    for axis, (title, found, value) in zip(axes[0], panels, strict=True):
        for label in dict.fromkeys(point.label for point, _ in found):
            chosen = [(point.rate, value(one)) for point, one in found if point.label == label]
            axis.plot(*zip(*sorted(chosen), strict=True), marker="o", label=label)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("requests a second")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
