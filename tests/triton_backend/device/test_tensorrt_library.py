"""What a CPU can see of TensorRT: which library is taken, and each reason not to serve."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import pytest
import torch

from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from tests.triton_backend.fakes import make_contract
from triton_backend.device import tensorrt_library
from triton_backend.device.plan_checks import check_alias, check_profiles, check_tensors
from triton_backend.device.shapes import of_ranges
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner

NO_TENSORRT = {name: None for names in tensorrt_library._MODULES.values() for name in names}


def contract_of(target: str, **builder: object) -> EngineContract:
    return dataclasses.replace(make_contract(), target=target, builder=builder)


def test_an_rtx_engine_takes_the_rtx_library() -> None:
    rtx = pytest.importorskip("tensorrt_rtx_bindings")
    contract = contract_of(bindings.TENSORRT_RTX, tensorrt_rtx=rtx.__version__)
    library = tensorrt_library.load_library(contract)
    assert (library.title, library.version) == ("TensorRT-RTX", rtx.__version__)
    assert not library.captures
    assert hasattr(library.api.IExecutionContext, "execute_async_v3")


def test_every_name_that_is_used_is_in_the_library() -> None:
    """Of RTX's, which are TensorRT's too; a renamed one would only show on a GPU."""
    rtx = pytest.importorskip("tensorrt_rtx_bindings")
    for owner, names in {
        "ICudaEngine": (
            *("num_io_tensors", "get_tensor_name", "get_tensor_mode", "get_tensor_dtype"),
            *("num_optimization_profiles", "get_tensor_profile_shape", "device_memory_size_v2"),
            *("create_execution_context", "create_runtime_config", "get_aliased_input_tensor"),
        ),
        "IExecutionContext": (
            *("set_input_shape", "set_tensor_address", "execute_async_v3", "set_device_memory"),
            "set_optimization_profile_async",
        ),
        "IRuntimeConfig": (
            *("cuda_graph_strategy", "create_runtime_cache", "set_runtime_cache"),
            "get_runtime_cache",
        ),
        "IRuntimeCache": ("serialize", "deserialize"),
        "ExecutionContextAllocationStrategy": ("USER_MANAGED",),
        "CudaGraphStrategy": ("WHOLE_GRAPH_CAPTURE",),
    }.items():
        assert set(names) <= set(dir(getattr(rtx, owner))), owner


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (bindings.TENSORRT, r"TensorRT, which does not import here .*\[tensorrt\]'"),
        (bindings.TENSORRT_RTX, r"TensorRT-RTX, which does not import here .*\[tensorrt-rtx\]'"),
    ],
)
def test_a_missing_library_is_named(
    target: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    for name, nothing in NO_TENSORRT.items():
        monkeypatch.setitem(sys.modules, name, nothing)
    with pytest.raises(EngineError, match=said):
        open_runner(tmp_path, contract_of(target), RunnerOptions())


def test_another_release_is_refused(tmp_path) -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    contract = contract_of(bindings.TENSORRT_RTX, tensorrt_rtx="1.2.0")
    with pytest.raises(EngineError, match=r"built with TensorRT-RTX 1\.2\.0, this server runs"):
        open_runner(tmp_path, contract, RunnerOptions())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_so(tmp_path) -> None:
    rtx = pytest.importorskip("tensorrt_rtx_bindings")
    contract = contract_of(bindings.TENSORRT_RTX, tensorrt_rtx=rtx.__version__)
    with pytest.raises(EngineError, match="a tensorrt-rtx engine needs an NVIDIA GPU"):
        open_runner(tmp_path, contract, RunnerOptions())


def test_a_plan_that_does_not_load_says_why(tmp_path) -> None:
    """The library's own first error, or that it gave none, in one sentence with the file."""
    rtx = pytest.importorskip("tensorrt_rtx_bindings")
    contract = contract_of(bindings.TENSORRT_RTX, tensorrt_rtx=rtx.__version__)
    library = tensorrt_library.load_library(contract)
    plan = tmp_path / "step.engine"
    plan.write_bytes(b"no plan" * 100)
    runtime = tensorrt_library.make_runtime(library)
    with pytest.raises(
        EngineError, match=r"step\.engine does not load in TensorRT-RTX .*; rebuild"
    ):
        tensorrt_library.deserialise(library, runtime, plan)


def test_the_first_error_is_the_reason_and_is_told_once() -> None:
    severity = SimpleNamespace(ERROR=1, INTERNAL_ERROR=2, WARNING=3)
    api = SimpleNamespace(ILogger=type("ILogger", (), {"Severity": severity}))
    library = tensorrt_library.Library(bindings.TENSORRT, api, tensorrt_library._make_log(api))
    library.log.log(3, "a warning")
    library.log.log(1, "out of\n  memory.")
    library.log.log(2, "a consequence")
    assert library.why() == "out of memory"
    assert library.why() == "no reason given"


def test_compiled_kernels_are_written_whole_or_not_at_all(tmp_path) -> None:
    kernels = SimpleNamespace(serialize=lambda: b"kernels")
    cache = tmp_path / "made" / "step.kernels"
    tensorrt_library.save_kernels(SimpleNamespace(get_runtime_cache=lambda: kernels), cache)
    assert cache.read_bytes() == b"kernels"
    assert [path.name for path in cache.parent.iterdir()] == ["step.kernels"]
    kernels.serialize = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        tensorrt_library.save_kernels(SimpleNamespace(get_runtime_cache=lambda: kernels), cache)
    assert cache.read_bytes() == b"kernels"


CONTRACT = contract_of(bindings.TENSORRT)
STEP = bindings.signatures(CONTRACT)[bindings.STEP]
FOUND = {b.name: (True, b.dtype) for b in STEP.inputs} | {
    b.name: (False, b.dtype) for b in STEP.outputs
}


def test_a_plan_of_other_tensors_is_refused() -> None:
    check_tensors("step", FOUND, STEP)
    for wrong in (
        {**FOUND, "phases": (True, "int64")},
        {name: value for name, value in FOUND.items() if name != "phases"},
    ):
        with pytest.raises(EngineError, match=r"step has other .* \(phases is the first\)"):
            check_tensors("step", wrong, STEP)
    with pytest.raises(EngineError, match=r"\(more is the first\)"):
        check_tensors("step", {**FOUND, "more": (True, "int64")}, STEP)


def test_a_plan_of_lower_limits_is_refused() -> None:
    place = (CONTRACT.target, CONTRACT.geometry, CONTRACT.limits, CONTRACT.page_size)
    sizes = bindings.target_sizes(*place)
    profiles = [of_ranges(STEP, ranges) for ranges in bindings.profiles(*place)]
    check_profiles("step", STEP, sizes, profiles)
    with pytest.raises(EngineError, match=r"takes no input token_ids \[65\], which config\.json"):
        check_profiles("step", STEP, {**sizes, "rows": 65}, profiles)


def test_a_plan_that_updates_another_input_is_refused_one_that_does_not_tell_is_not() -> None:
    check_alias("step", "kv_pool_out.3", "kv_pool.3")
    check_alias("step", "kv_pool_out.3", None)
    check_alias("step", "hidden", None)
    with pytest.raises(EngineError, match=r"into kv_pool\.2, not into kv_pool\.3"):
        check_alias("step", "kv_pool_out.3", "kv_pool.2")


@pytest.mark.parametrize(("told", "found"), [("kv_pool.3", "kv_pool.3"), ("", None), (None, None)])
def test_what_the_library_says_of_an_alias(told: str | None, found: str | None) -> None:
    engine = SimpleNamespace(get_aliased_input_tensor=lambda _: told)
    assert tensorrt_library.aliased_input(engine, "kv_pool_out.3") == found
    assert tensorrt_library.aliased_input(SimpleNamespace(), "kv_pool_out.3") is None
