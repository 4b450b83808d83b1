"""The command: dry runs of its cases by the interpreter, refusals, where results go."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import RESULTS, destination, parse, result_name
from benchmarks.gpu_document import problems
from benchmarks.gpu_parent import ROOT, Run

MOMENT = datetime(2026, 11, 30, 9, 5)
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")

# One case of every function, in bf16 where there is a choice; the rest differ in sizes and types.
CHECKS = (
    *("edges of pages", "other heads, bfloat16", "sizes, bfloat16", "uneven", "ties", "released s"),
    *("many segments", "split keys of 16", "pages past", "reads, bfloat16", "generation", "engine"),
)
BENCHES = (
    *("ceilings", "canvas over 512", "prompt of 1024", "experts: 16", "read of 8", "of a canvas"),
    *("read: prompt of 512", "step of 1 ", "whole, 1 "),
)


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "only"), [("check", CHECKS), ("bench", BENCHES)])
def test_every_kind_of_case_runs_interpreted_and_is_right(kind, only, tmp_path):
    output = tmp_path / "run.json"
    before = sorted(RESULTS.iterdir())
    done = command(kind, "--dry-run", "--output", str(output), "--only", *only)
    values = json.loads(output.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert problems(values) == []
    assert (values["kind"], values["device"]) == (kind, "cpu interpreter")
    statuses = {case["name"]: case["status"] for case in values["cases"]}
    skipped = {name for name, status in statuses.items() if status != "ok"}
    assert skipped == {name for name in statuses if "engine:" in name or "flex" in name}
    found = "timings" if kind == "bench" else "findings"
    assert all(case[found] for case in values["cases"] if case["status"] == "ok")
    assert sorted(RESULTS.iterdir()) == before


@no_gpu
@pytest.mark.parametrize("target", ["gpu-check", "gpu-bench"])
def test_without_a_gpu_it_ends_with_one_sentence(target):
    make = ["make", "--no-print-directory", target, f"PYTHON_BIN={sys.executable}"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert "finds no NVIDIA GPU on this machine" in first
    assert all(line.startswith("make") for line in rest)


def test_modules_of_the_parent_load_no_torch():
    script = "import sys, benchmarks.gpu; assert not sys.modules.keys() & {'torch', 'triton'}"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "arguments", [["check", "--only", "no such case"], ["neither"], [], ["check", "--budget", "x"]]
)
def test_a_wrong_command_line_is_refused(arguments):
    with pytest.raises(SystemExit):
        parse(arguments)


def test_an_interpreted_run_is_never_among_the_results():
    with pytest.raises(SystemExit):
        parse(["bench", "--dry-run", "--output", str(RESULTS / "gpu-fake.json")])
    assert destination(parse(["bench", "--dry-run"]), Run("cpu interpreter"), MOMENT) is None


def test_a_real_run_is_named_after_its_card():
    path = destination(parse(["bench"]), Run("NVIDIA H200 NVL"), MOMENT)
    assert path == RESULTS / "gpu-nvidia-h200-nvl-20261130-0905.json"
    assert result_name("check", "NVIDIA H200", MOMENT) == "gpu-check-nvidia-h200-20261130-0905.json"


def test_results_are_of_real_cards_and_well_formed():
    for path in RESULTS.glob("*.json"):
        values = json.loads(path.read_text())
        assert problems(values) == []
        assert "NVIDIA" in values["device"]


def test_the_dry_run_needs_none_of_what_the_project_compiles(tmp_path):
    """No C++ compiler, no library of kernels: PATH holds nothing."""
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    arguments = ["-m", "benchmarks.gpu", "check", "--dry-run", "--only", "ties"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=Path(ROOT),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
