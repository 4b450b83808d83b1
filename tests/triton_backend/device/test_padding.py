"""Padded steps fit the engine, and what is added says that it is nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from build_engine import bindings
from build_engine.bindings import FUNCTIONS, HEAD, STEP
from build_engine.contract import EngineContract
from plugins.spec import COMMITTED, NO_LABEL, NO_PAGE, NO_SLOT, ROW_COUNT, Phase
from tests.triton_backend.device.steps import MIXES, Part, make_step
from tests.triton_backend.fakes import make_contract
from triton_backend.device import padding
from triton_backend.device.shapes import choose_profile, of_ranges

TARGETS = ("onnx", bindings.CUDA, bindings.TENSORRT, bindings.TENSORRT_RTX)


@pytest.fixture(scope="module")
def contract() -> EngineContract:
    return make_contract(max_step_tokens=96, max_output_rows=48)


def padded(contract: EngineContract, parts: list[Part]) -> dict[str, dict[str, np.ndarray]]:
    """Every function's arrays, as the runner would stage them, by a target's rules."""
    target = (contract.target, contract.geometry, contract.limits, contract.page_size)
    most = bindings.target_sizes(*target)
    whole = bindings.dynamic_sizes(contract.limits, contract.page_size)
    packed = make_step(contract, parts)
    plan = padding.plan_calls(packed, most, whole)
    return {
        STEP: padding.step_arrays(packed, plan, most),
        HEAD: padding.head_arrays(packed, plan, most) if plan.reads else {},
        "denoise": padding.denoise_arrays(packed, plan) if plan.denoised else {},
    }


@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_nothing_that_was_asked_is_changed(contract: EngineContract, parts: list[Part]) -> None:
    packed, made = make_step(contract, parts), padded(contract, parts)
    for name, values in {**made[STEP], **made[HEAD], **made["denoise"]}.items():
        if name not in ("output_rows", "lanes"):
            given = getattr(packed, name)
            where = tuple(slice(size) for size in given.shape)
            assert np.array_equal(values[where], given), name
            assert values.dtype == given.dtype, name


@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_what_is_added_is_nothing(contract: EngineContract, parts: list[Part]) -> None:
    packed, made = make_step(contract, parts), padded(contract, parts)
    step, rows = made[STEP], len(packed.token_ids)
    assert (step["slots_sliding"][rows:] == NO_SLOT).all()
    assert (step["slots_full"][rows:] == NO_SLOT).all()
    assert (step["phases"][rows:] == Phase.PREFILL).all()
    assert (step["soft_index"][rows:] == 0).all()
    added = step["segments"][len(packed.segments) :]
    assert not added[:, [ROW_COUNT, COMMITTED]].any()
    table = packed.table_full.shape
    assert (step["table_full"][table[0] :] == NO_PAGE).all()
    assert (step["table_full"][:, table[1] :] == NO_PAGE).all()
    if made[HEAD]:
        count, columns = packed.label_ids.shape
        assert (made[HEAD]["label_ids"][count:] == NO_LABEL).all()
        assert (made[HEAD]["label_ids"][:, columns:] == NO_LABEL).all()


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_step_stays_within_the_limits(target: str) -> None:
    """Filled to the last row, segment, label and page."""
    contract = make_contract(max_step_tokens=90, max_segments=7, max_output_rows=33)
    contract = dataclasses.replace(contract, target=target)
    most = bindings.target_sizes(target, contract.geometry, contract.limits, contract.page_size)
    parts = [
        *[Part(Phase.DENOISE, 16, committed=127, reads=11)] * 3,
        *[Part(Phase.DENOISE, 13, committed=110, denoised=True)] * 2,
        Part(Phase.COMMIT, 15, committed=60),
        Part(Phase.PREFILL, 1, committed=2),
    ]
    made = padded(contract, parts)
    assert len(made[STEP]["token_ids"]) == 90
    assert len(made[STEP]["segments"]) == 7
    assert made[STEP]["table_full"].shape == (7, most["pages_per_row"])
    assert len(made[STEP]["output_rows"]) <= most["outputs"]
    assert len(made[HEAD]["label_ids"]) == 33


@pytest.mark.parametrize("target", [bindings.TENSORRT, bindings.TENSORRT_RTX])
@pytest.mark.parametrize("parts", MIXES.values(), ids=MIXES)
def test_every_padded_step_has_a_profile(target: str, parts: list[Part]) -> None:
    """Small ones the first; all of these are small."""
    contract = dataclasses.replace(
        make_contract(max_step_tokens=2048, max_segments=256), target=target
    )
    where = (target, contract.geometry, contract.limits, contract.page_size)
    signature = bindings.signatures(contract)[STEP]
    profiles = [of_ranges(signature, ranges) for ranges in bindings.profiles(*where)]
    shapes = {name: array.shape for name, array in padded(contract, parts)[STEP].items()}
    shapes = {b.name: shapes[b.name] for b in signature.inputs if b.name in shapes}
    assert choose_profile(shapes, profiles) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_every_function(target: str) -> None:
    """Reads and generation go through these three; a target without one would drop requests."""
    found = bindings.signatures(dataclasses.replace(make_contract(), target=target))
    assert tuple(found) == FUNCTIONS
    assert {b.name for b in found["denoise"].outputs} >= {"candidate", "soft"}
    assert {b.name for b in found[HEAD].outputs} >= {"label_logits", "lse"}
