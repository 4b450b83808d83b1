"""Engines that only a GPU runs, against the CPU engine; skipped without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from build_engine.build import BuildConfig, build_engine
from build_engine.contract import load_contract
from tests.triton_backend.device.steps import MIXES, Part, differences, fill_pools, make_step, run
from triton_backend.runner import Runner, RunnerOptions
from triton_backend.runner_cpu import CpuRunner
from triton_backend.runners import open_runner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
# Sums in other orders, and fp32 products of three TF32 products each.
BOUND = 2e-3
PACKAGES = {"cuda": "triton", "tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx_bindings"}
SIZES: dict[str, Any] = {
    "page_size": 8, "max_context": 128, "max_step_tokens": 512, "max_segments": 16
}  # fmt: skip


@pytest.fixture(scope="module")
def cpu(tiny_engine: Path) -> CpuRunner:
    return CpuRunner(tiny_engine, load_contract(tiny_engine))


@pytest.fixture(scope="module", params=PACKAGES)
def gpu(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    pytest.importorskip(PACKAGES[request.param])
    sizes, directory = {**SIZES}, tmp_path_factory.mktemp("gpu")
    if request.param == "tensorrt-rtx":
        major, minor = torch.cuda.get_device_capability()
        if major in (9, 10):
            pytest.skip("TensorRT-RTX does not know this GPU")
        sizes["compute_capability"] = (f"{major}.{minor}",)
    build = BuildConfig(tiny, directory / "engine", target=request.param, **sizes)
    contract = build_engine(build, lambda _: None)
    return open_runner(build.output, contract, RunnerOptions(kernel_cache=directory / "kernels"))


def close(found: dict[str, float]) -> bool:
    """Whether all real numbers are within the bound; a near-tie may turn an id over."""
    return all(
        value <= BOUND
        for name, value in found.items()
        if not name.endswith(("argmax", "candidate", "candidate_log_prob"))
    )


@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_results_and_pools_equal_the_cpu_engines(
    gpu: Runner, cpu: CpuRunner, parts: list[Part]
) -> None:
    """Five times: the first call, the one that captures a graph, and its replays."""
    packed = make_step(cpu.contract, parts)
    fill_pools(cpu)
    wanted = run(cpu, packed)
    fill_pools(gpu)
    for turn in range(5):
        found = differences(run(gpu, packed), wanted)
        assert close(found), (turn, found)
    for ours, theirs in zip(gpu.pools, cpu.pools, strict=True):  # type: ignore[attr-defined]
        assert float(np.abs(ours.cpu().numpy() - theirs).max()) <= BOUND


def test_replays_take_new_inputs(gpu: Runner, cpu: CpuRunner) -> None:
    """Steps of the same shapes and other contents: a graph that kept its first ones would show."""
    parts = MIXES["every phase at once"]
    for seed in range(6):
        packed = make_step(cpu.contract, parts, seed)
        fill_pools(cpu, seed)
        if not seed:
            fill_pools(gpu)
        _copy_pools(gpu, cpu)
        found = differences(run(gpu, packed), run(cpu, packed))
        assert close(found), (seed, found)


def _copy_pools(gpu: Runner, cpu: CpuRunner) -> None:
    """In place, as a graph holds the pools' addresses."""
    for ours, theirs in zip(gpu.pools, cpu.pools, strict=True):  # type: ignore[attr-defined]
        ours.copy_(torch.from_numpy(np.array(theirs)))
