"""Draws the entropy of every canvas position after every denoising step of one generation.

Run beside a server: python -m examples.clients.entropy_plot --output docs/denoising.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from examples.clients.generate import parser, values_of
from examples.clients.streaming import Chunk, generate

mpl.use("Agg")


def draw(drafts: list[Chunk], output: Path) -> None:
    """One panel a canvas: positions across, steps down."""
    canvases = sorted({chunk.canvas for chunk in drafts})
    maps = [np.stack([c.entropy for c in drafts if c.canvas == n]) for n in canvases]
    size = (1 + 4.2 * len(maps), 1.6 + 0.22 * max(len(steps) for steps in maps))
    figure, axes = plt.subplots(1, len(maps), figsize=size, squeeze=False, layout="constrained")
    top = max(float(steps.max()) for steps in maps)
    for n, (panel, steps) in enumerate(zip(axes[0], maps, strict=True)):
        height, width = steps.shape
        image = panel.imshow(
            steps, vmin=0, vmax=top, cmap="magma", aspect="auto", interpolation="nearest",
            extent=(-0.5, width - 0.5, height + 0.5, 0.5),
        )  # fmt: skip
        panel.set_title(f"canvas {n}")
        panel.set_xlabel("position")
        panel.yaxis.get_major_locator().set_params(integer=True)
    axes[0][0].set_ylabel("denoising step")
    figure.colorbar(image, ax=axes[0], label="entropy (nats)")
    figure.savefig(output, dpi=110)


def main() -> int:
    """Asks for the demo's reply and draws it."""
    made = parser(__doc__)
    made.add_argument("--output", type=Path, default=Path("docs/denoising.png"))
    chosen = made.parse_args()
    drafts = [chunk for chunk in generate(chosen.url, values_of(chosen)) if chunk.draft]
    draw(drafts, chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
