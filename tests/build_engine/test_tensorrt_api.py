"""Which TensorRT, GPU and options will do; and that the double has the real library's names."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("onnxscript")

from build_engine import target_tensorrt
from build_engine.bindings import Binding
from build_engine.build import BuildConfig, build_engine, up_to_date
from build_engine.errors import EngineError
from build_engine.job import Options
from build_engine.tensorrt_api import Api
from build_engine.tensorrt_builder import _same
from build_engine.tensorrt_device import Device
from tests.tensorrt_double import library, names, network

H200 = Device("NVIDIA H200", 9, 0, 132)


def refusals(device: Device | None = H200, dtype: str = "bfloat16", *asked: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_tensorrt, "find_device", lambda: device)
        return target_tensorrt.problems(dtype, Options(compute_capabilities=asked))


def test_a_machine_without_what_it_takes_is_told_what(monkeypatch):
    library.install(monkeypatch, "11.4.0.106")
    assert refusals() == []
    assert refusals(H200, "bfloat16", "9.0") == []
    assert "is not that of NVIDIA H200, 9.0" in refusals(H200, "float32", "12.0")[0]
    assert "has compute capability 7.5" in refusals(Device("Tesla T4", 7, 5, 40))[0]
    assert "has compute capability 13.0" in refusals(Device("Next", 13, 0, 200))[0]
    assert refusals(None) == [
        "--target tensorrt builds on the GPU it is for, and this machine has none"
    ]
    for version, why in (("10.13.3", "too old"), ("8.6.1", "too old"), ("12.0.0", "too new")):
        library.install(monkeypatch, version)
        assert [why in one for one in refusals()] == [True]


def test_without_the_library_or_a_gpu_a_build_is_refused_before_it_starts(tiny, tmp_path):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    order = BuildConfig(tiny, tmp_path / "engine", target="tensorrt")
    with pytest.raises(EngineError, match="TensorRT cannot be imported.*machine has none"):
        build_engine(order, lambda _: None)
    assert not list(tmp_path.iterdir())
    assert not up_to_date(order)


def test_phases_of_one_name_that_overlap_do_not_cancel_the_build(monkeypatch):
    """TensorRT takes an exception in a monitor for the wish to stop."""
    library.install(monkeypatch, "11.4.0.106")
    import tensorrt

    said: list[str] = []
    monitor = Api(tensorrt, tensorrt.plugin).progress("step", said.append)
    for _ in range(2):
        monitor.phase_start("Tactics", "Building", 3)
    assert monitor.step_complete("Tactics", 0) is True
    monitor.phase_finish("Tactics")
    assert monitor.step_complete("Tactics", 1) is True
    assert said[-2:] == ["build step: Tactics, 1 of 3", "build step: Tactics, 2"]


def test_an_outputs_fixed_size_may_be_unknown_and_an_inputs_may_not(monkeypatch):
    library.install(monkeypatch, "11.4.0.106")
    import tensorrt

    api, pool = Api(tensorrt, tensorrt.plugin), Binding("kv_pool_out.0", "float32", ("pages", 2, 8))
    unknown = network.ITensor(pool.name, names.DataType.FLOAT, (-1, -1, -1))
    assert _same(api, unknown, pool, (-1,))
    assert not _same(api, unknown, pool, ())
    assert not _same(api, network.ITensor(pool.name, unknown.dtype, (-1, 2, 9)), pool, (-1,))


DOUBLES = (
    *(library.Builder, library.EngineInspector, library.ICudaEngine, library.Refitter),
    *(library.Runtime, library.Weights, names.ILogger, names.IProgressMonitor),
    *(network.IBuilderConfig, network.INetworkDefinition, network.IOptimizationProfile),
    *(network.OnnxParser, network.ParserError),
)
OWN = {"memory", "logger", "plan", "wanted", "given", "model", "definitions", "refittable", "text"}
OWN |= {"network", "plugins", "errors", "flags", "version", "features", "profiles", "cache"}
OWN |= {"shapes", "read", "ptr"}


@pytest.mark.parametrize("double", DOUBLES, ids=lambda kind: kind.__name__)
def test_the_double_has_no_names_that_the_real_library_lacks(double):
    """TensorRT-RTX has the same classes without plugins, and can be installed."""
    real = getattr(pytest.importorskip("tensorrt_rtx_bindings"), double.__name__)
    ours = {name for name in vars(double) if not name.startswith("_")} - OWN
    assert ours <= set(dir(real))


@pytest.mark.parametrize("version", ["10.14.1.48", "11.4.0.106"])
def test_enumerations_have_no_names_that_the_real_library_lacks(monkeypatch, version):
    real = pytest.importorskip("tensorrt_rtx_bindings")
    library.install(monkeypatch, version)
    import tensorrt

    for kind in ("BuilderFlag", "PreviewFeature", "ProfilingVerbosity", "LayerInformationFormat"):
        ours = set(getattr(tensorrt, kind).__members__)
        weak = {"FP16", "BF16"} if version.startswith("10.") else set()
        assert ours - weak <= set(getattr(real, kind).__members__)
    assert {one.name for one in names.DataType} <= set(real.DataType.__members__)
