"""The TensorRT target against a double of the library: flags, profiles, plugins, weights, errors.

Nothing here has run on a GPU; `tests.tensorrt_double` says what the double checks.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("onnxscript")
import onnx

from build_engine import bindings, target_onnx, target_tensorrt, tensorrt_cache
from build_engine.build import BuildConfig, build_engine, up_to_date
from build_engine.contract import load_contract
from build_engine.errors import EngineError
from build_engine.job import Job
from build_engine.onnx_weights import write_weights
from build_engine.tensorrt_device import Device
from build_engine.tensorrt_refit import refit_engine
from plugins.gpu.artifact import Artifact
from plugins.tensorrt import registration
from plugins.tensorrt.catalog import PLUGINS
from tests.tensorrt_double import library
from tests.tensorrt_double.library import ICudaEngine, Memory

H200 = Device("NVIDIA H200", 9, 0, 132)
VERSIONS = ("10.14.1.48", "11.4.0.106")
FILES = ("rank0.engine", "head.engine", "denoise.engine")
SHARED = 4096


def compiled(plugin, plan, setting) -> Artifact:
    """What a kernel's artifact says; compiling them all is tests/plugins/tensorrt's."""
    name = plugin.kernel.__name__
    return Artifact(name, f".entry {name}()", (), SHARED, plan.warps, setting.gpu.capability, b"")


def exported(engine: Path) -> Callable[[Job], dict[str, onnx.ModelProto]]:
    """`target_onnx.graphs` from an export that was made before, over weights written anew."""

    def graphs(job: Job) -> dict[str, onnx.ModelProto]:
        places = {place.name: place for place in write_weights(job).values()}
        made = {}
        for name in bindings.FUNCTIONS:
            made[name] = onnx.load(engine / f"{name}.onnx", load_external_data=False)
            for tensor in made[name].graph.initializer:
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    place = places[tensor.name]
                    del tensor.external_data[:]
                    for key, value in (
                        ("location", place.file),
                        ("offset", place.offset),
                        ("length", place.length),
                    ):
                        tensor.external_data.add(key=key, value=str(value))
        return made

    return graphs


@pytest.fixture(scope="module", params=VERSIONS)
def patched(
    request, tiny_onnx: Path, tmp_path_factory
) -> Iterator[tuple[pytest.MonkeyPatch, Memory]]:
    """The double of one release, and one GPU."""
    with pytest.MonkeyPatch.context() as patch:
        memory = library.install(patch, request.param)
        patch.setattr(target_onnx, "graphs", exported(tiny_onnx))
        patch.setattr(target_tensorrt, "find_device", lambda: H200)
        patch.setattr(registration, "compile_plugin", compiled)
        cache = tmp_path_factory.mktemp("timings")
        patch.setattr(tensorrt_cache, "cache_directory", lambda: cache)
        yield patch, memory


def order(tiny: Path, output: Path, **more) -> BuildConfig:
    return BuildConfig(tiny, output, target="tensorrt", page_size=8, max_context=128, **more)


@pytest.fixture(scope="module")
def built(patched, tiny, tmp_path_factory) -> tuple[Path, Memory, list[str]]:
    """One whole build: its directory, what the double saw, what was reported."""
    _, memory = patched
    output, reported = tmp_path_factory.mktemp("engines") / "tensorrt", []
    build_engine(order(tiny, output), reported.append)
    return output, memory, reported


def test_an_engine_directory_echoes_tensorrt_llms(built):
    output, memory, reported = built
    contract = load_contract(output)
    reports = [name.replace(".engine", ".layers.json") for name in FILES]
    assert {*FILES, *reports, "weights.safetensors"} <= set(contract.files)
    assert set(contract.files) | {"config.json"} == {path.name for path in output.iterdir()}
    assert all(json.loads((output / name).read_text()) == {"Layers": []} for name in reports)
    assert contract.builder["tensorrt"] == memory.version
    assert contract.builder["compute_capability"] == "9.0"
    assert len(contract.builder["kernels"]) == 64
    assert "build step: Building Engine, 2 of 2" in reported


def test_flags_and_features(built, patched):
    _, memory, _ = built
    import tensorrt

    for network in memory.networks:
        wanted = tensorrt.NetworkDefinitionCreationFlag
        flags = (wanted.STRONGLY_TYPED, wanted.PREFER_AOT_PYTHON_PLUGINS)
        assert network.flags == sum(1 << flag for flag in flags)
    for config in memory.configs:
        assert config.flags == {
            tensorrt.BuilderFlag.STRIP_PLAN,
            tensorrt.BuilderFlag.REFIT_INDIVIDUAL,
        }
        assert config.profiling_verbosity is tensorrt.ProfilingVerbosity.DETAILED
        assert config.features == {tensorrt.PreviewFeature.ALIASED_PLUGIN_IO_10_03}


def test_two_profiles_for_small_and_large_steps(built):
    output, memory, _ = built
    contract = load_contract(output)
    signatures = bindings.signatures(contract)
    for config, name in zip(memory.configs, bindings.FUNCTIONS, strict=True):
        small, large = config.profiles
        inputs = {binding.name for binding in signatures[name].inputs}
        assert set(small.shapes) == set(large.shapes) == inputs
    ids = [profile.shapes["token_ids"] for profile in memory.configs[0].profiles]
    assert ids[0][2] < ids[1][2] == (contract.limits.max_step_tokens,)
    assert ids[0][0] == ids[1][0] == (1,)


def test_every_plugin_is_launched_as_its_plans_say(built):
    """The double's build has checked dtypes, aliases, scalars and bounds of every launch."""
    _, memory, _ = built
    launches = [one for some in memory.launches for one in some]
    assert {one.plugin for one in launches} == set(PLUGINS) - {"attend_split", "attend_merge"}
    for one in launches:
        assert one.parameters["shared_mem"] == SHARED
        assert one.parameters["block_x"] % 32 == 0
        assert f".entry {PLUGINS[one.plugin].kernel.__name__}()" == one.code
        assert len(one.scalars) == len(PLUGINS[one.plugin].scalars)
    attends = [one for one in launches if one.plugin == "attend"]
    for one in attends:
        q, pool, segments, table, out = one.shapes
        assert out == q
        assert one.scalars == (q[0], segments[0], *table, pool[0])
        assert one.parameters["grid_x"] >= segments[0] + 1


def test_a_plan_is_given_every_weight_once(built, tiny):
    """By the checkpoint's names, bit for bit; the step's plan takes all there are but one name."""
    from safetensors.torch import load_file

    output, memory, _ = built
    contract, stored = load_contract(output), load_file(output / "weights.safetensors")
    seen = set()
    for name in FILES:
        plan = json.loads((output / name).read_bytes()[4:])
        refit_engine(ICudaEngine(memory, plan), output, contract)
        assert set(memory.refitted) == set(plan["weights"])
        for weight, content in memory.refitted.items():
            assert content == stored[weight].numpy().tobytes()
        seen |= set(memory.refitted)
    assert seen == set(stored)


def test_timings_are_kept_for_the_next_build(built):
    _, memory, _ = built
    kept = list(tensorrt_cache.cache_directory().iterdir())
    assert [path.name for path in kept] == [f"timing-{memory.version}-NVIDIA-H200-9-0.cache"]
    assert kept[0].read_bytes() == f"{memory.version} timed {len(memory.launches)}".encode()


def test_the_same_build_is_up_to_date_and_another_gpu_is_not(built, patched, tiny):
    output, _, _ = built
    patch, _ = patched
    assert up_to_date(order(tiny, output))
    with pytest.MonkeyPatch.context() as other:
        other.setattr(target_tensorrt, "find_device", lambda: Device("NVIDIA B200", 10, 0, 148))
        assert not up_to_date(order(tiny, output))


def test_a_weightless_engine_reads_the_checkpoint(patched, tiny, tmp_path):
    _, memory = patched
    output = tmp_path / "engine"
    contract = build_engine(order(tiny, output, weightless=True), lambda _: None)
    assert "weights.safetensors" not in contract.files
    assert json.loads((output / "weights.json").read_text()) == {
        "directory": str(tiny.resolve()),
        "files": ["model.safetensors"],
    }
    plan = json.loads((output / "rank0.engine").read_bytes()[4:])
    refit_engine(ICudaEngine(memory, plan), output, contract)
    assert set(memory.refitted) == set(plan["weights"])
    (output / "weights.json").write_text(
        json.dumps({"directory": str(tmp_path), "files": ["model.safetensors"]})
    )
    with pytest.raises(EngineError, match="weights stayed in the checkpoint, but .* is gone"):
        refit_engine(ICudaEngine(memory, plan), output, contract)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("build", r"does not build step: \[builder.cpp:7\] no kernel fits\.$"),
        ("load", "does not load the step it built"),
        ("alias", "updates token_ids instead of kv_pool.0"),
        ("names", "takes other weights than the checkpoint's: /constant_7"),
    ],
)
def test_what_the_library_refuses_is_one_sentence_and_leaves_nothing(
    patched, tiny, tmp_path, wrong, message
):
    patch, memory = patched
    if wrong == "alias" and memory.version.startswith("10."):
        pytest.skip("this release cannot be asked")
    with pytest.MonkeyPatch.context() as faulty:
        faulty.setattr(memory, "wrong", wrong)
        with pytest.raises(EngineError, match=message) as found:
            build_engine(order(tiny, tmp_path / "engine"), lambda _: None)
    assert memory.version in str(found.value) and "\n" not in str(found.value)
    assert not list(tmp_path.iterdir())


def test_an_unknown_plugin_is_the_parsers_error(patched, tiny, tmp_path):
    _, memory = patched
    with pytest.MonkeyPatch.context() as faulty:
        faulty.delitem(memory.plugins.known, "dg::attend")
        faulty.setattr(target_tensorrt, "register", lambda _: None)
        with pytest.raises(EngineError, match=r"does not read step.onnx: Plugin not found: attend"):
            build_engine(order(tiny, tmp_path / "engine"), lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_sentence_and_leaves_nothing(patched, tiny, tmp_path):
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = Path.write_bytes
    with pytest.MonkeyPatch.context() as faulty:
        faulty.setattr(
            Path,
            "write_bytes",
            lambda path, content: (full if path.suffix == ".engine" else write)(path, content),
        )
        with pytest.raises(EngineError, match="No space left on device"):
            build_engine(order(tiny, tmp_path / "engine"), lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_refused_weight_names_it(built):
    output, memory, _ = built
    contract = load_contract(output)
    plan = json.loads((output / "head.engine").read_bytes()[4:])
    (name,) = plan["weights"]
    for weights, message in (
        ({"other": [0, 7]}, "lack other"),
        ({name: [0, 7]}, f"weight {name} is 32768 of float32, the engine wants 7 of float32"),
        ({name: [7, 32768]}, "the engine wants 32768 of bfloat16"),
    ):
        with pytest.raises(EngineError, match=message):
            refit_engine(ICudaEngine(memory, {**plan, "weights": weights}), output, contract)
    with pytest.MonkeyPatch.context() as faulty:
        faulty.setattr(memory, "wrong", "refit")
        with pytest.raises(EngineError, match="does not take the weights: out of memory"):
            refit_engine(ICudaEngine(memory, plan), output, contract)
