"""`make load`: perf_analyzer with held-out tickets against a running or a self-started server."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import perf_analyzer
from benchmarks.overhead import added_milliseconds
from benchmarks.perf_analyzer import Load
from benchmarks.timing import emit
from triton_backend.launch_error import LaunchError
from triton_backend.server import Server, ServerConfig

TICKETS = Path(__file__).resolve().parents[1] / "examples" / "tickets"
COLUMNS = {
    "Inferences/Second": "reads_per_second",
    "p50 latency": "p50_us",
    "p90 latency": "p90_us",
    "p95 latency": "p95_us",
    "p99 latency": "p99_us",
}
PROMPTS = 64


def write_input_data(path: Path) -> None:
    """perf_analyzer's input file: the demo questions over many different tickets."""
    questions = (TICKETS / "questions.json").read_text(encoding="utf-8")
    lines = (TICKETS / "heldout.jsonl").read_text(encoding="utf-8").splitlines()[:PROMPTS]
    data = [{"text_input": [json.loads(line)["text"]], "questions": [questions]} for line in lines]
    path.write_text(json.dumps({"data": data}, ensure_ascii=False), encoding="utf-8")


def measure(url: str, concurrency: list[int], seconds: float) -> list[dict[str, object]]:
    """A figure per model and concurrency."""
    figures: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "input.json"
        write_input_data(data)
        for model, streaming in (("structured_read", False), ("diffusion_gemma", True)):
            rows = perf_analyzer.run(Load(model, streaming, concurrency, seconds), url, data)
            figures += [_figure(model, streaming, row) for row in rows]
    return figures


def _figure(model: str, streaming: bool, row: Mapping[str, float]) -> dict[str, object]:
    return {
        "figure": "load",
        "model": model,
        "protocol": "gRPC streaming" if streaming else "gRPC",
        "concurrency": int(row["Concurrency"]),
        **{name: row[column] for column, name in COLUMNS.items() if column in row},
    }


def show(figures: list[dict[str, object]]) -> None:
    """The table for people, then one JSON line a figure for programs."""
    names = ["model", "protocol", "concurrency", *COLUMNS.values()]
    table = Table(*names, title="perf_analyzer")
    for figure in figures:
        table.add_row(*(_cell(figure.get(name, "")) for name in names))
    Console(width=120).print(table)
    for figure in figures:
        print(json.dumps(figure))


def _cell(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _run(url: str, options: argparse.Namespace) -> None:
    emit("added_ms", **added_milliseconds(url), asked="<= 3 over the execution, one at a time")
    show(measure(url, options.concurrency, options.seconds))


def main() -> int:
    """Returns 0 when every load ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="host:port of a running server's gRPC; else one is started")
    parser.add_argument("--engine", type=Path)
    parser.add_argument("--tritonserver", type=Path)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measurement window")
    options = parser.parse_args()
    if options.url is None and options.engine is None:
        parser.error("one of --url and --engine is needed")
    try:
        if options.url is not None:
            _run(options.url, options)
            return 0
        with Server(ServerConfig(options.engine, tritonserver=options.tritonserver)) as server:
            _run(server.grpc_url, options)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
