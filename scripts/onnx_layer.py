"""Draws one layer of an exported step graph as SVG, small standard ops put together by purpose.

Run: python scripts/onnx_layer.py ENGINE/step.onnx docs/onnx-layer.svg [LAYER]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import onnx

NORM = ("Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul")
HIDDEN = {"Transpose", "Reshape", "Unsqueeze", "Cast", "Squeeze", "Identity", "Shape", "Constant"}
WIDTH, HEIGHT, GAP, STEP = 190, 38, 14, 58


@dataclass(eq=False)
class Box:
    """Some nodes shown as one."""

    title: str
    note: str = ""
    outputs: list[str] = field(default_factory=list)
    sources: set[Box] = field(default_factory=set)
    depth: int = 0
    x: float = 0


def layer_nodes(graph: onnx.GraphProto, layer: int) -> list[onnx.NodeProto]:
    """Nodes of one layer: from behind the product with the last one's scalar to its own."""
    ends, scalars = [], {}
    for n, node in enumerate(graph.node):
        if node.op_type == "Where" and any(name.endswith("layer_scalar") for name in node.input):
            scalars[node.output[0]] = n
        elif any(name in scalars for name in node.input):
            ends.append(n + 1)
    return list(graph.node)[ends[layer - 1] if layer else 0 : ends[layer]]


class Drawing:
    """Boxes by the names of the tensors they make."""

    def __init__(self, weights: set[str]) -> None:
        self.weights, self.made, self.boxes = weights, dict[str, Box](), list[Box]()

    def box(self, title: str, nodes: list[onnx.NodeProto]) -> None:
        """Add nodes as one box, with edges from what made their inputs."""
        inputs = [name for node in nodes for name in node.input if name]
        own = {name for node in nodes for name in node.output}
        note = ", ".join(short(name) for name in inputs if name in self.weights)
        made = Box(title, note, sorted(own))
        for name in inputs:
            source = self.made.get(name)
            if source is not None and name not in own:
                made.sources.add(source)
        made.depth = 1 + max((source.depth for source in made.sources), default=0)
        self.made.update(dict.fromkeys(own, made))
        self.boxes.append(made)

    def pass_on(self, node: onnx.NodeProto) -> None:
        """A node that only reshapes: its input's box stands for it."""
        source = next((self.made[name] for name in node.input if name in self.made), None)
        if source is not None:
            self.made.update(dict.fromkeys(node.output, source))
        elif node.op_type == "Transpose" and node.input[0] in self.weights:
            # A transposed weight is noted where it is used.
            self.weights.add(node.output[0])


def short(name: str) -> str:
    """A weight's name within its layer."""
    return name.rsplit("layers.", maxsplit=1)[-1].split(".", 1)[-1].removesuffix(".weight")


def draw_boxes(nodes: list[onnx.NodeProto], weights: set[str], enters: str) -> list[Box]:
    """Boxes of a layer's nodes; RMSNorm and rotary embedding are one box each."""
    drawing, n = Drawing(weights), 0
    drawing.made[enters] = Box("hidden rows in")
    drawing.boxes.append(drawing.made[enters])
    transposed = {}
    while n < len(nodes):
        node, kinds = nodes[n], tuple(node.op_type for node in nodes[n : n + 6])
        if kinds == NORM:
            # Norms of the same rows are computed once, and then scaled by several weights.
            normed = nodes[n + 5].output[0]
            alone = sum(normed in other.input for other in nodes) == 1
            scaled = alone and nodes[n + 6].op_type == "Mul" and nodes[n + 6].input[1] in weights
            count = 7 if scaled else 6
            drawing.box("RMSNorm" if scaled else "RMSNorm, no weight", nodes[n : n + count])
        elif kinds[:1] == ("Split",) and "Neg" in kinds:
            count = next(k for k in range(12) if nodes[n + k].op_type == "Add") + 1
            drawing.box("rotary embedding", nodes[n : n + count])
        elif node.op_type in HIDDEN:
            count = 1
            drawing.pass_on(node)
            if node.op_type == "Transpose":
                transposed[node.output[0]] = node.input[0]
        else:
            count = 1
            shown = onnx.NodeProto()
            shown.CopyFrom(node)
            names = [transposed.get(name, name) for name in node.input]
            del shown.input[:]
            shown.input.extend(names)
            drawing.box(f"{node.domain}::{node.op_type}" if node.domain else node.op_type, [shown])
        n += count
    return drawing.boxes


def place(boxes: list[Box]) -> tuple[float, float]:
    """Set every box's x; returns the size of the picture."""
    rows: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        rows[box.depth].append(box)
    width = max(len(row) for row in rows.values()) * (WIDTH + GAP) + GAP
    for row in rows.values():
        start = (width - len(row) * (WIDTH + GAP) + GAP) / 2
        for n, box in enumerate(row):
            box.x = start + n * (WIDTH + GAP)
    return width, (max(rows) + 1) * STEP + GAP


def svg(boxes: list[Box], title: str) -> str:
    """The picture."""
    width, height = place(boxes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="12">',
        f"  <title>{escape(title)}</title>",
        f'  <rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    for box in boxes:
        for source in sorted(box.sources, key=lambda source: (source.depth, source.x)):
            ends = (source.x + WIDTH / 2, source.depth * STEP + GAP + HEIGHT)
            to = (box.x + WIDTH / 2, box.depth * STEP + GAP)
            lines.append(
                f'  <path d="M{ends[0]:.0f} {ends[1]} C{ends[0]:.0f} {ends[1] + 20} '
                f'{to[0]:.0f} {to[1] - 20} {to[0]:.0f} {to[1]}" fill="none" stroke="#8895a7"/>'
            )
    for box in boxes:
        y, colour = box.depth * STEP + GAP, "#ffd9a8" if "::" in box.title else "#eef2f8"
        colour = "#cfe0ff" if box.title == "MatMul" else colour
        middle = box.x + WIDTH / 2
        lines.append(
            f'  <rect x="{box.x:.0f}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            f'fill="{colour}" stroke="#8895a7"/>'
        )
        title_size = 10 if len(box.title) > 24 else 12
        lines.append(
            f'  <text x="{middle:.0f}" y="{y + 16}" text-anchor="middle" '
            f'font-size="{title_size}" font-weight="bold" fill="#33415c">{escape(box.title)}</text>'
        )
        lines.append(
            f'  <text x="{middle:.0f}" y="{y + 30}" text-anchor="middle" font-size="9" '
            f'fill="#33415c">{escape(box.note[:44])}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    layer = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    graph = onnx.load(source, load_external_data=False).graph
    nodes = layer_nodes(graph, layer)
    made = {name for node in nodes for name in node.output}
    weights = {tensor.name for tensor in graph.initializer if "layers." in tensor.name}
    enters = next(name for node in nodes for name in node.input if name not in made | weights)
    boxes = draw_boxes(nodes, weights, enters)
    target.write_text(svg(boxes, f"Layer {layer} of the step graph"), encoding="utf-8")
    print(f"{target}: {len(nodes)} nodes in {len(boxes)} boxes")


if __name__ == "__main__":
    main()
