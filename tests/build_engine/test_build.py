"""The builder's command line, for real: one small engine, built once, and every way to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from build_engine.__main__ import main
from build_engine.build import BuildConfig, up_to_date
from build_engine.config import load_config
from build_engine.contract import load_contract, verify_files
from build_engine.cpu_weights import packed_parts
from build_engine.model import Step
from plugins.layout import unpack_panels


def arguments(checkpoint: Path, output: Path, *more: str) -> list[str]:
    return ["--checkpoint", str(checkpoint), "--output", str(output), *more]


@pytest.mark.slow
def test_an_engine_is_whole_and_built_alike_twice(
    tiny: Path, tiny_engine: Path, tmp_path: Path
) -> None:
    """Reproducible to the byte: the second build runs in a fresh process."""
    output = tmp_path / "an engine"
    command = [sys.executable, "-m", "build_engine"]
    command += arguments(tiny, output, "--page-size", "8", "--max-context", "128")
    subprocess.run(command, check=True, capture_output=True)
    contract = load_contract(output)
    verify_files(output, contract)
    assert contract == load_contract(tiny_engine)
    assert [path.name for path in tmp_path.iterdir()] == ["an engine"]


def test_the_contract_carries_the_limits_asked_for(tiny_engine: Path) -> None:
    contract = load_contract(tiny_engine)
    assert (contract.page_size, contract.limits.max_context) == (8, 128)
    assert contract.limits.max_canvas == contract.geometry.canvas_length == 16
    packages = {"step.pt2", "head.pt2", "denoise.pt2"}
    assert packages | {"weights.safetensors", "tokenizer.json"} <= set(contract.files)


def test_every_packed_weight_unpacks_to_the_checkpoint(tiny: Path, tiny_engine: Path) -> None:
    built = load_file(str(tiny_engine / "weights.safetensors"))
    source = load_file(str(tiny / "model.safetensors"))
    model = Step(load_config(tiny))
    for name, parts in packed_parts(model).items():
        original = source[f"model.decoder.{name}"]
        unpacked = unpack_panels(built[name], original.shape[-2], parts)
        assert torch.equal(unpacked, original), name


def test_an_engine_is_up_to_date_until_its_checkpoint_or_options_change(
    copy_of: Callable[[], Path], tiny_engine: Path
) -> None:
    directory = copy_of()
    build = BuildConfig(directory, tiny_engine, page_size=8, max_context=128)
    same_name = directory.rename(directory.parent / "tiny")
    build = BuildConfig(same_name, tiny_engine, page_size=8, max_context=128)
    assert up_to_date(build)
    assert not up_to_date(BuildConfig(same_name, tiny_engine, page_size=16, max_context=128))
    with (same_name / "config.json").open("a") as handle:
        handle.write("\n")
    assert not up_to_date(build)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--max-context", "4096"), "max_position_embeddings"),
        (("--page-size", "12"), "power of two"),
        (("--max-canvas", "500"), "--max-canvas 500"),
        (("--max-labels", "0"), "--max-labels 0"),
    ],
)
def test_a_bad_option_is_one_sentence_and_leaves_nothing(
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    named: str,
) -> None:
    assert main(arguments(tiny, tmp_path / "engine", *more)) == 1
    assert named in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_without_its_tokenizer_is_refused(
    copy_of: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of()
    (directory / "tokenizer.json").unlink()
    assert main(arguments(directory, tmp_path / "engine")) == 1
    assert "tokenizer.json not found" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "engine").exists()


def test_a_tokenizer_larger_than_the_model_is_refused_naming_both_files(
    copy_of: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of()
    values = json.loads((directory / "tokenizer.json").read_text())
    values["model"]["vocab"]["one too many"] = 519
    (directory / "tokenizer.json").write_text(json.dumps(values))
    assert main(arguments(directory, tmp_path / "engine")) == 1
    message = capsys.readouterr().err
    assert "519" in message
    assert "tokenizer.json" in message
    assert "config.json" in message
