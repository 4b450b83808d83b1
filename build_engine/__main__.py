"""Command line of the builder."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from build_engine.build import BuildConfig, build_engine, up_to_date
from build_engine.config import load_config
from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from build_engine.job import DTYPES, TARGETS
from plugins.errors import PluginError

console = Console(stderr=True)


def parser() -> argparse.ArgumentParser:
    """Options of `python -m build_engine`."""
    made = argparse.ArgumentParser(
        prog="python -m build_engine",
        description="Build a DiffusionGemma engine directory from a Hugging Face checkpoint.",
    )
    made.add_argument("--checkpoint", type=Path, required=True, help="checkpoint directory")
    made.add_argument("--output", type=Path, required=True, help="engine directory to write")
    made.add_argument("--target", default="cpu", choices=sorted(TARGETS))
    made.add_argument("--dtype", default="float32", choices=sorted(DTYPES))
    made.add_argument("--page-size", type=int, default=16, help="tokens in a KV page")
    made.add_argument("--max-step-tokens", type=int, default=4096, help="rows in one execution")
    made.add_argument("--max-segments", type=int, default=256, help="segments in one execution")
    made.add_argument("--max-context", type=int, help="prompt plus canvas, in tokens")
    made.add_argument("--max-canvas", type=int, help="widest canvas, in tokens")
    made.add_argument("--max-output-rows", type=int, default=1024, help="slots in one execution")
    made.add_argument("--max-labels", type=int, default=256, help="labels of one slot")
    made.add_argument(
        "--weightless", action="store_true", help="onnx: leave the weights in the checkpoint"
    )
    made.add_argument(
        "--compute-capability",
        nargs="+",
        default=(),
        metavar="SM",
        help="tensorrt-rtx: GPUs to build for, such as 8.9 (default: 8.6 8.9 12.0 12.1)",
    )
    made.add_argument(
        "--if-needed", action="store_true", help="do nothing when the engine is up to date"
    )
    return made


def _summary(contract: EngineContract, output: Path, seconds: float) -> Table:
    size = sum((output / name).stat().st_size for name in contract.files)
    limits = contract.limits
    table = Table(title=f"engine {output}", show_header=False)
    table.add_row("target", f"{contract.target}, {contract.dtype}")
    table.add_row("size", f"{size / 2**20:.1f} MiB in {len(contract.files)} files")
    geometry = contract.geometry
    table.add_row("layers", f"{geometry.num_layers}, hidden {geometry.hidden_size}")
    page = contract.kv_page_bytes / 1024
    table.add_row("KV page", f"{contract.page_size} tokens, {page:.0f} KiB")
    table.add_row("context / canvas", f"{limits.max_context} / {limits.max_canvas} tokens")
    table.add_row("rows an execution", f"{limits.max_step_tokens}")
    table.add_row("time", f"{seconds:.1f} s")
    return table


def _run(build: BuildConfig) -> EngineContract:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        return build_engine(build, lambda stage: progress.update(task, description=stage))


def main(arguments: list[str] | None = None) -> int:
    """Build; returns the exit code, 1 with one sentence on a user's error."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    options = vars(parser().parse_args(arguments))
    if_needed = options.pop("if_needed")
    options["compute_capability"] = tuple(options["compute_capability"])
    build = BuildConfig(**options)
    start = time.monotonic()
    try:
        if if_needed and up_to_date(build):
            console.print(f"engine {build.output} is up to date")
            return 0
        if load_config(build.checkpoint).has_vision:
            console.print("note: the vision tower is left out; images are not supported yet")
        contract = _run(build)
    except (EngineError, PluginError) as error:
        console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 1
    assert load_contract(build.output, verify=False) == contract
    console.print(_summary(contract, build.output, time.monotonic() - start))
    return 0


if __name__ == "__main__":
    sys.exit(main())
