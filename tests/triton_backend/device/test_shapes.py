"""Which profile takes a step, and what comes out of it."""

from __future__ import annotations

import dataclasses

import pytest

from build_engine import bindings
from tests.triton_backend.fakes import make_contract
from triton_backend.device.shapes import choose_profile, lacking, of_ranges, output_shapes

CONTRACT = dataclasses.replace(
    make_contract(max_step_tokens=2048, max_segments=256, max_output_rows=1024),
    target=bindings.TENSORRT,
)
PLACE = (CONTRACT.target, CONTRACT.geometry, CONTRACT.limits, CONTRACT.page_size)
STEP = bindings.signatures(CONTRACT)[bindings.STEP]
PROFILES = [of_ranges(STEP, ranges) for ranges in bindings.profiles(*PLACE)]
SMALL = {
    "rows": 512, "segments": 32, "tables": 32, "pages_per_row": 36, "soft": 514, "outputs": 1024,
    "sliding_pages": 300, "full_pages": 900,
}  # fmt: skip


def shapes(**changes: int) -> dict[str, tuple[int, ...]]:
    sizes = {**SMALL, **changes}
    return {b.name: tuple(sizes.get(n, n) for n in b.shape) for b in STEP.inputs}


def test_a_small_step_takes_the_first_profile():
    assert len(PROFILES) == 2
    assert choose_profile(shapes(), PROFILES) == 0


@pytest.mark.parametrize("name", ["rows", "segments", "tables", "soft", "outputs"])
def test_one_size_too_many_takes_the_second(name: str):
    assert choose_profile(shapes(**{name: SMALL[name] + 1}), PROFILES) == 1


def test_beyond_the_limits_there_is_none():
    assert choose_profile(shapes(rows=2048, soft=2050, outputs=3072), PROFILES) == 1
    assert choose_profile(shapes(rows=2049), PROFILES) is None


def test_outputs_take_their_sizes_from_the_inputs():
    found = output_shapes(STEP, shapes(outputs=77))
    assert found["hidden"] == (77, 8)
    assert found["kv_pool_out.0"] == (300, 2, 4, 1, 8)
    assert found["kv_pool_out.1"] == (900, 2, 4, 1, 8)


def test_a_plan_of_lower_limits_is_found_out():
    sizes = bindings.target_sizes(*PLACE)
    assert lacking(STEP, sizes, PROFILES) is None
    assert lacking(STEP, {**sizes, "rows": 2049}, PROFILES) == "token_ids [2049]"
    assert lacking(STEP, sizes, PROFILES[:1]) == "token_ids [2048]"


def test_a_plan_for_rtx_has_one_profile_and_heads_of_fewer_rows():
    rtx = (bindings.TENSORRT_RTX, *PLACE[1:])
    (ranges,) = bindings.profiles(*rtx)
    assert (ranges["reads"].most, ranges["denoised"].most) == (256, 256)
    assert ranges["lanes"].most == 2048


def test_no_tensor_of_a_plan_has_more_elements_than_tensorrt_counts():
    sizes = bindings.target_sizes(*PLACE)
    for binding in STEP.inputs:
        if bindings.is_pool(binding.name):
            elements = 1
            for size in binding.shape:
                elements *= sizes.get(size, size)
            assert elements < 1 << 31
