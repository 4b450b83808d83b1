"""The device runner over onnxruntime and packages against the CPU engine, on the same steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from build_engine import bindings
from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from plugins import loader
from plugins.spec import Phase
from tests.triton_backend.device.steps import (
    MIXES,
    Part,
    differences,
    fill_pools,
    make_step,
    run,
)
from triton_backend.device.cuda_executor import CudaExecutor
from triton_backend.device.runner import DeviceRunner
from triton_backend.runner_cpu import CpuRunner

# Two fp32 summation orders of the same products, through six layers.
BOUND = 1e-4


@pytest.fixture(scope="module")
def cpu(tiny_engine: Path) -> CpuRunner:
    return CpuRunner(tiny_engine, load_contract(tiny_engine))


@pytest.fixture(scope="module", params=["functions", "plain"])
def device(request: pytest.FixtureRequest) -> DeviceRunner:
    """Over the engine's own graphs, and over those for TensorRT-RTX by that target's rules."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from benchmarks.onnx_graphs import rtx_runner
    from triton_backend.device.onnx_executor import OnnxExecutor

    engine = request.getfixturevalue("tiny_onnx")
    contract = load_contract(engine)
    if request.param == "plain":
        return rtx_runner(engine, contract)
    return DeviceRunner(contract, OnnxExecutor(engine, contract))


@pytest.fixture(scope="module")
def packages(tiny_engine: Path) -> DeviceRunner:
    """Over the CPU engine's own packages, as a cuda engine's are run: only padding differs."""
    loader.load()
    contract = dataclasses.replace(load_contract(tiny_engine), target=bindings.CUDA)
    return DeviceRunner(contract, CudaExecutor(tiny_engine, contract, torch.device("cpu")))


def compare(device: DeviceRunner, cpu: CpuRunner, parts: list[Part]) -> dict[str, float]:
    """Differences of every result, and of the pools afterwards."""
    packed = make_step(cpu.contract, parts)
    fill_pools(device)
    fill_pools(cpu)
    found = differences(run(device, packed), run(cpu, packed))
    for n, (ours, theirs) in enumerate(zip(device.pools, cpu.pools, strict=True)):
        found[f"pool {n}"] = float(np.abs(ours.numpy() - theirs).max())
    return found


@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_results_and_pools_equal_the_cpu_engines(
    device: DeviceRunner, cpu: CpuRunner, parts: list[Part]
) -> None:
    """Argmax and candidates are whole numbers, so any other one is beyond the bound."""
    found = compare(device, cpu, parts)
    assert max(found.values()) <= BOUND, found


MANY = [
    *[Part(Phase.DENOISE, 16, committed=n, denoised=True, soft=n % 2 == 0) for n in range(17)],
    *[Part(Phase.DENOISE, 16, committed=n, reads=16) for n in range(17)],
]
"""272 rows of either head, more than one call of TensorRT-RTX takes."""


def test_heads_in_parts_give_what_one_call_gives(device: DeviceRunner, cpu: CpuRunner) -> None:
    found = compare(device, cpu, MANY)
    assert max(found.values()) <= BOUND, found


@pytest.mark.parametrize("parts", [*MIXES.values(), MANY], ids=[*MIXES, "many"])
def test_padding_changes_nothing(packages: DeviceRunner, cpu: CpuRunner, parts: list[Part]) -> None:
    """Not one bit: these are the same packages, with and without it."""
    found = compare(packages, cpu, parts)
    assert max(found.values()) == 0, found


@pytest.mark.parametrize("rows", [3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 25, 48, 49])
def test_every_side_of_a_bucket_gives_the_same(
    packages: DeviceRunner, cpu: CpuRunner, rows: int
) -> None:
    """As many prompt rows, read slots and denoised rows as a bucket holds, one less, one more."""
    parts = [Part(Phase.PREFILL, rows, committed=5)]
    left = rows
    while left:
        count = min(left, 16)
        parts.append(Part(Phase.DENOISE, count, committed=9, reads=count))
        parts.append(Part(Phase.DENOISE, count, committed=30, denoised=True, soft=True))
        left -= count
    found = compare(packages, cpu, parts)
    assert max(found.values()) == 0, found


def test_one_segment_alone_gives_what_it_gives_in_company(packages: DeviceRunner) -> None:
    """The same pools, tables and draws; only the others are taken away."""
    parts = MIXES["every phase at once"]
    packed = make_step(packages.contract, parts)
    fill_pools(packages)
    together = run(packages, packed)
    first, count, _, _, table = packed.segments[4]
    rows, reads = slice(first, first + count), len(packed.label_ids)
    segments = np.zeros((2, 5), np.int32)
    segments[0] = (0, *packed.segments[4, 1:4], table)
    alone = dataclasses.replace(
        packed,
        **{name: getattr(packed, name)[rows] for name in _PER_ROW},
        segments=segments,
        output_rows=np.arange(count),
        label_ids=packed.label_ids[:0],
        temperature=packed.temperature[:count],
        draws=packed.draws[:count],
    )
    assert reads
    fill_pools(packages)
    lone, beside = run(packages, alone).denoise, together.denoise
    assert lone is not None
    assert beside is not None
    assert np.array_equal(lone.argmax, beside.argmax[:count])
    assert np.array_equal(lone.candidate, beside.candidate[:count])
    assert np.abs(lone.entropy - beside.entropy[:count]).max() <= 1e-5
    assert float((lone.soft - beside.soft[:count]).abs().max()) <= 1e-5


_PER_ROW = ("token_ids", "positions", "phases", "slots_sliding", "slots_full", "soft_index")


def test_soft_vectors_stay_on_the_device_and_outlive_the_next_step(
    packages: DeviceRunner,
) -> None:
    """A canvas holds slices of them until its next step, whatever runs in between."""
    fill_pools(packages)
    packed = make_step(packages.contract, MIXES["a first denoising step"])
    found = run(packages, packed).denoise
    assert found is not None
    part = found.rows(3, 5).soft
    assert isinstance(part, torch.Tensor)
    before = part.clone()
    run(packages, make_step(packages.contract, MIXES["every phase at once"], seed=9))
    assert torch.equal(part, before)


@pytest.mark.parametrize("target", ["onnx", bindings.TENSORRT])
def test_a_pool_that_cannot_be_is_refused_in_one_sentence(
    packages: DeviceRunner, target: str
) -> None:
    contract = dataclasses.replace(packages.contract, target=target)
    runner = DeviceRunner(contract, _Nothing())
    said = "takes at most 4194303" if target == bindings.TENSORRT else "takes at most 16777216"
    with pytest.raises(EngineError, match=said):
        runner.create_pools(1 << 40, 8)
    if target == "onnx":
        with pytest.raises(EngineError, match="MiB, more than this machine gives"):
            runner.create_pools((1 << 24) - 1, (1 << 24) - 1)


class _Nothing:
    """An executor that is never run."""

    device = torch.device("cpu")
    embedding = None

    def run(self, function: str, inputs: Any) -> dict[str, torch.Tensor]:
        raise AssertionError(function)


def test_pools_made_anew_are_zero(packages: DeviceRunner) -> None:
    """Of as many pages as either group was given."""
    fill_pools(packages)
    packages.create_pools(5, 3)
    assert not any(pool.any() for pool in packages.pools)
    contract: EngineContract = packages.contract
    counts = [3 if contract.geometry.is_sliding(n) else 5 for n in range(6)]
    assert [len(pool) for pool in packages.pools] == counts
