"""What a cuda engine needs of the machine, said in one sentence each, and what identifies it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import triton

from build_engine import target_cuda
from build_engine.__main__ import main
from build_engine.build import BuildConfig, up_to_date
from build_engine.errors import EngineError
from build_engine.job import Options
from plugins.gpu.device import Gpu
from tests.build_engine.absent_cuda import absent_cuda

NO_CUDA = "--target cuda needs a torch built for CUDA"
without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="needs torch's CPU build")


def build(checkpoint: Path, output: Path, *more: str) -> int:
    return main(
        ["--checkpoint", str(checkpoint), "--output", str(output), "--target", "cuda", *more]
    )


@without_cuda
def test_a_torch_for_cpus_builds_nothing(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert build(tiny, tmp_path / "engine") == 1
    said = " ".join(capfd.readouterr().err.split())
    assert f"{NO_CUDA}, torch {torch.__version__} is not; install one of the same release." in said
    assert not list(tmp_path.iterdir())


@without_cuda
def test_no_engine_is_up_to_date_where_none_can_be_built(tiny: Path, tmp_path: Path) -> None:
    assert not up_to_date(BuildConfig(tiny, tmp_path / "engine", target="cuda"))
    with pytest.raises(EngineError, match=NO_CUDA):
        target_cuda.identity(Options())


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (problem,) = target_cuda.problems("bfloat16", Options())
    assert problem == "--target cuda needs an NVIDIA GPU and its driver, and torch sees none"


@pytest.mark.parametrize("capability", [61, 75])
def test_an_old_gpu_is_named(monkeypatch: pytest.MonkeyPatch, capability: int) -> None:
    monkeypatch.setattr(target_cuda, "_gpu", lambda: Gpu(capability, 40))
    with absent_cuda(Gpu(capability, 40)):
        (problem,) = target_cuda.problems("bfloat16", Options())
    assert "compute capability 8.0 or above, this one has" in problem
    assert problem.endswith(f"{capability // 10}.{capability % 10}")


def test_options_of_other_targets_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_cuda, "_absence", lambda: "")
    given = Options(weightless=True, compute_capabilities=("8.9",))
    weightless, capabilities = target_cuda.problems("bfloat16", given)
    assert weightless == "--weightless is for --target onnx, a cuda engine holds its weights"
    assert capabilities.startswith("--compute-capability is for --target tensorrt-rtx")
    assert target_cuda.problems("float32", Options()) == []


def test_an_engine_is_for_one_kind_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_cuda, "_gpu", lambda: Gpu(120, 170))
    with absent_cuda(Gpu(120, 170)):
        found = target_cuda.identity(Options())
        assert len(found.pop("kernels")) == 64
        assert found == {
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "compute_capabilities": ["12.0"],
            "multiprocessors": 170,
        }


def test_a_missing_triton_is_named(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    for name in list(sys.modules):
        if name.startswith("plugins.gpu.") or name == "build_engine.target_cuda":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    assert build(tiny, tmp_path / "engine") == 1
    assert "pip install 'diffusiongemma-triton[gpu]'" in " ".join(capfd.readouterr().err.split())
    assert not list(tmp_path.iterdir())
