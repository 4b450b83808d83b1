"""A cuda engine is refused where it cannot run; its executor is proved in test_runner."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from build_engine import bindings
from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from plugins import loader
from triton_backend.device.checks import check_capability
from triton_backend.device.cuda_executor import CudaExecutor
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner


@pytest.fixture
def contract(tiny_engine: Path) -> EngineContract:
    """The CPU engine's, as a cuda engine's would be: the files have the same names."""
    return dataclasses.replace(load_contract(tiny_engine), target=bindings.CUDA)


def test_another_torch_is_refused(tiny_engine: Path, contract: EngineContract) -> None:
    other = dataclasses.replace(contract, builder={"torch": "1.0"})
    with pytest.raises(EngineError, match=r"built with torch 1\.0, this server runs torch 2"):
        open_runner(tiny_engine, other, RunnerOptions())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_so(tiny_engine: Path, contract: EngineContract) -> None:
    with pytest.raises(EngineError, match=r"a cuda engine needs an NVIDIA GPU, .* `--target cpu`"):
        open_runner(tiny_engine, contract, RunnerOptions())


@pytest.mark.parametrize("key", ["compute_capabilities", "compute_capability"])
def test_a_gpu_of_another_kind_is_refused(contract: EngineContract, key: str) -> None:
    built = ["8.9", "9.0"] if key == "compute_capabilities" else "9.0"
    contract = dataclasses.replace(contract, builder={key: built})
    check_capability(contract, "9.0", "H200")
    with pytest.raises(EngineError, match=r"9\.0, this one \(B200\) has 10\.0; rebuild it"):
        check_capability(contract, "10.0", "B200")


def test_a_broken_package_is_refused(
    tiny_engine: Path, contract: EngineContract, tmp_path: Path
) -> None:
    loader.load()
    engine = Path(shutil.copytree(tiny_engine, tmp_path / "engine"))
    (engine / "head.pt2").write_bytes(b"no package")
    with pytest.raises(EngineError, match=r"head\.pt2 does not load here \(.*\); rebuild"):
        CudaExecutor(engine, contract, torch.device("cpu"))
