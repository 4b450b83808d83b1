"""Kernels compiled without a GPU: what they occupy, and PTX that others than Triton can launch."""

import re

import pytest

from plugins.gpu.artifact import ArtifactError, assemble, compile_kernel, strip_hidden
from plugins.gpu.check import STACK_LIMIT, measure, measure_all
from plugins.gpu.device import TARGETS, Gpu
from plugins.gpu.variants import variants
from tests.plugins.gpu.interpreter import ROOT

# Each kernel once, the wide heads both; `make kernels-check` compiles all variants and types.
NAMES = (
    *("page write", "attend 256", "attend 512", "attend merge 512"),
    *("label fold x64", "label merge", "denoise fold x64", "denoise merge", "denoise soft x64"),
    *("denoise finish", "expert sort", "gate up x32", "down x32", "expert combine"),
)


@pytest.fixture(scope="module", autouse=True)
def cache():
    """Compiled kernels are kept beside the other caches of this repository, by content."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(ROOT / ".cache" / "triton"))
        yield


def test_every_kernel_compiles_for_every_target_within_its_bounds(cache):
    rows = list(measure_all(["bfloat16"], TARGETS, NAMES))
    assert {(row.kernel, row.capability) for row in rows} == {
        (name, capability) for name in NAMES for capability in TARGETS
    }
    for row in rows:
        assert row.usage.shared_bytes <= Gpu(row.capability).shared_bytes, row
        assert row.usage.stack_bytes <= STACK_LIMIT, row


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_other_types_compile_too(dtype, cache):
    names = ("attend 64", "attend 512", "gate up x16", "denoise fold x64", "label fold x32")
    rows = measure(dtype, 90, names)
    assert rows
    assert not [row for row in rows if row.fault]


def compiled(name: str):
    gpu = Gpu(90)
    variant = next(v for v in variants("bfloat16", gpu) if v.name == name)
    return variant, compile_kernel(variant.kernel, variant.signature, variant.plan, gpu)


def test_an_artifact_lists_its_arguments_in_order_and_nothing_hidden(cache):
    variant, artifact = compiled("attend 512")
    assert artifact.arguments == (
        *(("inputs.0", "*bf16"), ("inputs.1", "*bf16"), ("inputs.2", "*i32")),
        ("inputs.3", "*i32"),
        *(("rows", "i32"), ("segment_count", "i32"), ("tables", "i32"), ("table_width", "i32")),
        *(("pages", "i32"), ("out", "*bf16")),
    )
    entry = re.search(r"\.entry (\w+)\((.*?)\)", artifact.ptx, re.DOTALL)
    assert entry.group(1) == artifact.entry
    kinds = re.findall(r"\.param \.(\w+)", entry.group(2))
    assert kinds == ["u64"] * 4 + ["u32"] * 5 + ["u64"]
    assert f".reqntid {artifact.threads}" in artifact.ptx
    assert artifact.threads == 32 * variant.plan.warps


def test_stripped_ptx_assembles_and_does_not_spill_more(cache):
    _, artifact = compiled("attend 512")
    assert "0 bytes spill stores, 0 bytes spill loads" in assemble(artifact)


@pytest.mark.parametrize("name", ["attend 256", "attend 512", "denoise fold x64"])
def test_inner_loops_use_tensor_cores_and_wide_copies(cache, name):
    """Catches masks and strides that the compiler cannot see through: loads number by number."""
    ptx = compiled(name)[1].ptx
    assert "wgmma.mma_async" in ptx
    assert "cp.async.cg.shared.global" in ptx
    assert not re.search(r"ld\.global\.b16|cp\.async\.ca", ptx)


PTX = """
.visible .entry copy(
	.param .u64 .ptr .global .align 1 copy_param_0,
	.param .u32 copy_param_1,
	.param .u64 .ptr .global .align 1 copy_param_2,
	.param .u64 .ptr .global .align 1 copy_param_3
)
{
	ld.param.b64 	%rd1, [copy_param_0];
	ret;
}
"""


def test_hidden_parameters_are_taken_out():
    stripped = strip_hidden(PTX, "copy", 2)
    assert re.findall(r"copy_param_\d", stripped) == [
        "copy_param_0",
        "copy_param_1",
        "copy_param_0",
    ]
    assert ".param .u32 copy_param_1\n)" in stripped


@pytest.mark.parametrize(
    ("ptx", "entry", "visible", "message"),
    [
        (PTX.replace("[copy_param_0]", "[copy_param_3]"), "copy", 2, "uses its hidden parameter"),
        (
            PTX.replace(".u64 .ptr .global .align 1 copy_param_3", ".u32 copy_param_3"),
            "copy",
            2,
            "uses",
        ),
        (PTX, "copy", 3, "4 parameters for 3 arguments"),
        (PTX, "copy", 1, "4 parameters for 1 arguments"),
        (PTX, "other", 2, "no entry point"),
    ],
)
def test_ptx_that_cannot_be_launched_by_others_is_refused(ptx, entry, visible, message):
    with pytest.raises(ArtifactError, match=message):
        strip_hidden(ptx, entry, visible)
