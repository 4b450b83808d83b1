"""Command line of the builder."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType

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
_NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


class Stopped(BaseException):
    """A signal asked the build to end; what it wrote is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; nothing was written.")
        self.exit_code = 128 + number


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # A second signal must not interrupt the removal.
    for one in _STOPPING:
        signal.signal(one, signal.SIG_IGN)
    raise Stopped(number)


def _fail(message: str, code: int = 1) -> int:
    text = escape(" ".join(message.split()))
    console.print(f"[red]error:[/red] {text}", soft_wrap=True, highlight=False)
    return code


def _out_of_memory(error: BaseException) -> bool:
    # torch has no error of its own for memory that it cannot have.
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)


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
        contract = _run(build)
    except (EngineError, PluginError) as error:
        return _fail(str(error))
    except Stopped as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(f"{error.filename or build.checkpoint}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        return _fail(f"out of memory ({error}); free memory or build on a larger machine.")
    assert load_contract(build.output, verify=False) == contract
    if load_config(build.checkpoint).has_vision:
        console.print("note: the vision tower is left out; images are not supported yet")
    console.print(_summary(contract, build.output, time.monotonic() - start))
    return 0


if __name__ == "__main__":
    for one in _STOPPING:
        signal.signal(one, _stop)
    sys.exit(main())
