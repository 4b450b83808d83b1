"""Checks and measures the GPU kernels and the model over them on this machine's NVIDIA GPU.

`check` compares every kernel with its reference, and the model with transformers. `bench` measures
at the released checkpoint's sizes, with random weights made on the device. Both need torch's CUDA
build, triton, transformers and numpy, and nothing that this project compiles.

Run: python -m benchmarks.gpu check, python -m benchmarks.gpu bench
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu_cases import chosen
from benchmarks.gpu_document import Heading, document
from benchmarks.gpu_parent import ROOT, Plan, Run, WorkerError, run_cases
from benchmarks.gpu_progress import progress
from benchmarks.gpu_report import bench_lines, check_lines, good, summary
from benchmarks.gpu_tables import TABLES

RESULTS = ROOT / "benchmarks" / "results"
BUDGETS = {"check": 900.0, "bench": 450.0}
"""Seconds; what would not end within them is dropped, going by what it is said to take."""


def result_name(kind: str, device: str, moment: datetime) -> str:
    """gpu-CARD-DATE.json, or gpu-check-CARD-DATE.json."""
    card = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    prefix = "gpu" if kind == "bench" else "gpu-check"
    return f"{prefix}-{card}-{moment:%Y%m%d-%H%M}.json"


def destination(options: argparse.Namespace, run: Run, moment: datetime) -> Path | None:
    """Where the JSON goes: results are of real devices only."""
    if options.output is not None:
        return Path(options.output)
    if options.dry_run:
        return None
    return RESULTS / result_name(options.kind, run.device, moment)


def write(values: dict[str, Any], path: Path) -> None:
    """The JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line.

    Raises:
        SystemExit: it is wrong; an interpreted run may not be written to the results.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kind", choices=sorted(TABLES))
    budgets = ", ".join(f"{seconds:.0f} for {kind}" for kind, seconds in BUDGETS.items())
    parser.add_argument("--budget", type=float, help=f"seconds of the whole run ({budgets})")
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name contains a text")
    parser.add_argument("--output", type=Path, help="file of the JSON")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="every case at tiny sizes on this CPU, by Triton's interpreter; no result",
    )
    options = parser.parse_args(arguments)
    options.budget = BUDGETS[options.kind] if options.budget is None else options.budget
    if options.dry_run and options.output and RESULTS in options.output.resolve().parents:
        parser.error(f"--output {options.output} of a dry run must not be within {RESULTS}")
    if not chosen(TABLES[options.kind], options.only):
        parser.error(f"--only {' '.join(options.only)} names no case of {options.kind}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when anything that ran went wrong, or nothing could run."""
    options = parse(arguments)
    cases = chosen(TABLES[options.kind], options.only)
    patience = 600.0 if options.dry_run else 90.0
    plan = Plan(options.kind, cases, options.budget, options.dry_run, patience)
    try:
        with progress(cases) as report:
            run = run_cases(plan, report)
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 1
    lines = check_lines if options.kind == "check" else bench_lines
    print("\n".join(lines(run.outcomes)))
    moment = datetime.now().astimezone()
    heading = Heading(
        options.kind, run.device, moment.isoformat(timespec="seconds"), run.software,
        round(run.seconds, 1), options.budget,
    )  # fmt: skip
    path = destination(options, run, moment)
    if path is not None:
        write(document(heading, run.outcomes), path)
    print(f"\n{run.device}: {summary(run.outcomes, run.seconds)}" + (f"; {path}" if path else ""))
    return 0 if good(run.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
