"""Runs the perf_analyzer program of the tritonclient wheel and reads its report."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_backend import embedded
from triton_backend.launch_error import LaunchError


@dataclass(frozen=True)
class Load:
    """One model under load: closed loops of `concurrency` requests each, over gRPC."""

    model: str
    streaming: bool
    concurrency: Sequence[int]
    seconds: float


def run(load: Load, url: str, input_data: Path) -> list[Mapping[str, float]]:
    """One row per concurrency: its column names are those of perf_analyzer's report."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        libraries = Path(scratch) / "lib"
        libraries.mkdir()
        embedded.link_plain_names(embedded.find_installation(), libraries)
        report = Path(scratch) / "report.csv"
        for level in load.concurrency:
            command = [str(_program()), *_arguments(load, level, url), f"--input-data={input_data}"]
            done = subprocess.run(
                [*command, "-f", str(report)],
                env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise LaunchError(f"perf_analyzer failed: {_last_words(done)}")
            rows.append(_read(report))
    return rows


def _program() -> Path:
    program = Path(sys.prefix) / "bin" / "perf_analyzer"
    if not program.exists():
        raise LaunchError(f"{program} is missing: the tritonclient wheel for Linux carries it.")
    return program


def _arguments(load: Load, level: int, url: str) -> list[str]:
    streaming = ["--streaming"] if load.streaming else []
    return [
        *("-m", load.model, "-u", url, "-i", "grpc", "--async", *streaming),
        f"--concurrency-range={level}",
        f"--measurement-interval={int(load.seconds * 1000)}",
        # Three windows are averaged whatever their spread: a busy machine still gives a figure.
        *("--max-trials=3", "--stability-percentage=999"),
    ]


def _read(report: Path) -> Mapping[str, float]:
    with report.open(newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    return {name: float(value) for name, value in row.items() if name and value}


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return " ".join(lines[-3:]) or f"exit code {done.returncode}"
