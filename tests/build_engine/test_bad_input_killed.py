"""A build that is stopped or killed: nothing that loads, and nothing in the way of the next."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engine.checkpoint import SINGLE
from build_engine.contract import load_contract
from build_engine.engine_dir import building, publish
from build_engine.errors import EngineError
from build_engine.weights import DECODER, EMBEDDING
from tests.build_engine.refusals import edit_json, edit_weights
from tests.build_engine.test_bad_input_weights import rewrite_header
from tests.build_engine.test_contract import write

TABLE = DECODER + EMBEDDING

PATIENCE = 120.0
"""Seconds; only a machine that is very busy needs more than five."""


def begun(checkpoint: Path, outputs: list[Path]) -> list[subprocess.Popen[str]]:
    """Real builds, side by side, that have begun to write; an older engine is at each output."""
    builds = []
    for output in outputs:
        output.mkdir()
        write(output)
        command = [sys.executable, "-m", "build_engine", "--target", "onnx"]
        command += ["--checkpoint", str(checkpoint), "--output", str(output)]
        builds.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    end = time.monotonic() + PATIENCE
    for build, output in zip(builds, outputs, strict=True):
        while not leftovers(output) and build.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert leftovers(output), build.communicate()
    return builds


def leftovers(output: Path) -> list[Path]:
    return [path for path in output.parent.glob(".*") if path.name.startswith(f".{output.name}.b")]


def test_a_stopped_build_says_so_and_removes_what_it_wrote(tiny: Path, tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    outputs = [tmp_path / number.name for number in numbers]
    for build, number in zip(begun(tiny, outputs), numbers, strict=True):
        build.send_signal(number)
        _, said = build.communicate(timeout=PATIENCE)
        assert build.returncode == 128 + number
        lines = [line for line in said.splitlines() if line.startswith("error:")]
        assert lines == [f"error: stopped by {number.name}; nothing was written."]
        assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == sorted(outputs)
    assert all(load_contract(output) for output in outputs)


def test_a_killed_build_never_loads_and_the_next_one_clears_it(tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "engine"
    (build,) = begun(tiny, [output])
    build.kill()
    build.communicate(timeout=PATIENCE)
    assert build.returncode == -signal.SIGKILL
    (left,) = leftovers(output)
    with pytest.raises(EngineError, match="no engine at"):
        load_contract(left)
    assert load_contract(output)
    with building(output) as directory:
        assert leftovers(output) == [directory]
        publish(directory, output, write(directory))
    assert leftovers(output) == []
    assert load_contract(output)


@pytest.mark.parametrize("written", range(3))
def test_whatever_of_a_directory_was_written_it_does_not_load_without_the_rest(
    tmp_path: Path, written: int
) -> None:
    """The contract is written last; were it first, its hashes would still tell."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    write(whole)
    shutil.copytree(whole, part)
    if written == 0:
        (part / "config.json").unlink()
    elif written == 1:
        (part / "step.pt2").write_bytes(b"")
    else:
        content = (part / "config.json").read_bytes()
        (part / "config.json").write_bytes(content[: len(content) // 2])
    with pytest.raises(EngineError):
        load_contract(part)


def test_a_build_without_memory_says_so(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """A table of 1 GiB, nearly all of it a hole in the file, where 64 MiB are to be had."""
    directory, rows = copy_of(), 1 << 22
    edit_json(directory / "config.json", lambda c: c["text_config"].update(vocab_size=rows))
    edit_weights(directory, lambda tensors: tensors.pop(TABLE))
    path = directory / SINGLE

    def add_table(header: dict[str, Any]) -> None:
        end = max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_")
        offsets = [end, end + rows * 64 * 4]
        header[TABLE] = {"dtype": "F32", "shape": [rows, 64], "data_offsets": offsets}

    rewrite_header(path, add_table)
    os.truncate(path, path.stat().st_size + rows * 64 * 4)
    script = (
        "import resource, sys\nfrom build_engine.__main__ import main\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "most = pages * resource.getpagesize() + (64 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\nsys.exit(main())"
    )
    command = [sys.executable, "-c", script, "--checkpoint", str(directory)]
    command += ["--output", str(tmp_path / "out" / "engine")]
    build = subprocess.run(command, capture_output=True, text=True)
    assert build.returncode == 1, build.stderr
    assert "error: out of memory" in build.stderr
    assert "Traceback" not in build.stderr
    assert not (tmp_path / "out").exists()
