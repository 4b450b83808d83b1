"""The TensorRT executor over a stand-in that onnxruntime computes for: no GPU, no CUDA graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from build_engine import bindings, tensorrt_refit
from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from plugins.spec import Phase
from tests.triton_backend.device.steps import MIXES, Part, differences, fill_pools, make_step, run
from triton_backend.device.runner import DeviceRunner
from triton_backend.device.tensorrt_executor import TensorRTExecutor
from triton_backend.device.tensorrt_library import Library, _make_log
from triton_backend.runner import RunnerOptions
from triton_backend.runner_cpu import CpuRunner

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
from tests.triton_backend.device.fake_tensorrt import API, Context, Engine, write_plans

BOUND = 1e-4


@pytest.fixture(scope="module")
def cpu(tiny_engine: Path) -> CpuRunner:
    return CpuRunner(tiny_engine, load_contract(tiny_engine))


@pytest.fixture(scope="module")
def contract(tiny_onnx: Path) -> EngineContract:
    return dataclasses.replace(load_contract(tiny_onnx), target=bindings.TENSORRT)


@pytest.fixture(scope="module")
def refitted() -> Iterator[list[Engine]]:
    """Engines that were given their weights, in order."""
    found: list[Engine] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt_refit, "refit_engine", lambda engine, *_: found.append(engine))
        yield found


def open_executor(directory: Path, contract: EngineContract) -> TensorRTExecutor:
    library = Library(contract.target, API, _make_log(API))
    options = RunnerOptions(cuda_graphs=False)
    return TensorRTExecutor(directory, contract, library, torch.device("cpu"), options)


@pytest.fixture(scope="module")
def tensorrt(
    tiny_onnx: Path,
    contract: EngineContract,
    refitted: list[Engine],
    tmp_path_factory: pytest.TempPathFactory,
) -> DeviceRunner:
    directory = tmp_path_factory.mktemp("plans")
    write_plans(directory, tiny_onnx, contract)
    return DeviceRunner(contract, open_executor(directory, contract))


@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_tensors_are_bound_by_name_shape_and_place(
    tensorrt: DeviceRunner, cpu: CpuRunner, parts: list[Part]
) -> None:
    packed = make_step(cpu.contract, parts)
    fill_pools(tensorrt)
    fill_pools(cpu)
    found = differences(run(tensorrt, packed), run(cpu, packed))
    assert max(found.values(), default=0) <= BOUND, found
    for ours, theirs in zip(tensorrt.pools, cpu.pools, strict=True):
        assert np.abs(ours.numpy() - theirs).max() <= BOUND


def test_a_step_runs_in_the_context_of_the_profile_it_fits(
    tensorrt: DeviceRunner, refitted: list[Engine]
) -> None:
    """513 rows are one too many for the first; every plan has one context a profile."""
    step = refitted[0]
    assert [context.profile for context in step.contexts] == [0, 1]
    fill_pools(tensorrt)
    full = [Part(Phase.PREFILL, 128)] * 4
    for parts, profile in ((full, 0), ([*full, Part(Phase.PREFILL, 1)], 1)):
        before = [context.runs for context in step.contexts]
        run(tensorrt, make_step(tensorrt.contract, parts))
        after = [context.runs for context in step.contexts]
        assert [a - b for a, b in zip(after, before, strict=True)] == [1 - profile, profile]


@pytest.mark.parametrize("call", ["set_input_shape", "set_tensor_address"])
def test_an_input_that_is_refused_stops_the_step_instead_of_running_on_the_last_ones(
    tensorrt: DeviceRunner, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fill_pools(tensorrt)
    packed = make_step(tensorrt.contract, MIXES["every phase at once"])
    run(tensorrt, packed)
    taken = getattr(Context, call)
    monkeypatch.setattr(
        Context, call, lambda self, name, value: name != "soft" and taken(self, name, value)
    )
    with pytest.raises(EngineError, match="step does not take soft"):
        run(tensorrt, packed)


def test_every_plan_is_refitted_and_all_contexts_share_their_memory(
    tensorrt: DeviceRunner, refitted: list[Engine]
) -> None:
    assert len(refitted) == len(bindings.FUNCTIONS)
    assert len({context.memory for engine in refitted for context in engine.contexts}) == 1


def test_a_plan_that_updates_another_pool_is_refused(
    tiny_onnx: Path, contract: EngineContract, refitted: list[Engine], tmp_path: Path
) -> None:
    write_plans(tmp_path, tiny_onnx, contract, aliased=False)
    with pytest.raises(EngineError, match=r"step writes kv_pool_out\.0 into kv_pool\.1, not"):
        open_executor(tmp_path, contract)


def test_a_profile_that_is_refused_is_one_sentence(
    tiny_onnx: Path,
    contract: EngineContract,
    refitted: list[Engine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> bool:
        raise RuntimeError("Error in set optimization profile async.")

    write_plans(tmp_path, tiny_onnx, contract)
    monkeypatch.setattr(Context, "set_optimization_profile_async", refuse)
    with pytest.raises(EngineError, match="step: profile 0 is refused: no reason given"):
        open_executor(tmp_path, contract)


def test_a_plan_that_does_not_load_names_its_file_and_the_reason(
    tiny_onnx: Path, contract: EngineContract, refitted: list[Engine], tmp_path: Path
) -> None:
    write_plans(tmp_path, tiny_onnx, contract)
    (tmp_path / "rank0.engine").write_bytes(b"no plan")
    with pytest.raises(
        EngineError, match=r"rank0\.engine does not load in TensorRT 11\.1\.0 \(Ser"
    ):
        open_executor(tmp_path, contract)
