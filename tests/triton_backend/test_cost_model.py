"""The cost model: curves that never fall, budgets that keep a promise, swap or compute again."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.spec import Phase
from triton_backend.core import PROMPT, Segment
from triton_backend.cost_model import (
    CostModel,
    Curve,
    StepRows,
    prefers_swap,
    relative_error,
    rows_of,
)
from triton_backend.kv_cache import NOTHING

FLAT_THEN_LINEAR = Curve(((32, 0.012), (256, 0.012), (1024, 0.030)))
MEASURED = st.dictionaries(st.integers(1, 5000), st.floats(0, 1), min_size=1, max_size=12)


def test_a_curve_is_level_before_its_points_straight_between_and_goes_on_behind_them():
    curve = FLAT_THEN_LINEAR
    assert curve(1) == curve(32) == curve(200) == 0.012
    assert curve(640) == pytest.approx(0.021)
    assert curve(1792) == pytest.approx(0.048)
    assert curve(0) == 0


def test_no_points_are_no_seconds_and_one_point_is_for_all_rows():
    assert Curve()(100) == 0
    assert Curve(((8, 0.5),))(1) == Curve(((8, 0.5),))(900) == 0.5


@given(MEASURED)
def test_a_fitted_curve_never_falls(measured):
    curve = Curve.fitted(measured.items())
    found = [curve(rows) for rows in range(1, 5200, 37)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(found))


@given(MEASURED)
def test_a_fitted_curve_goes_through_points_that_rise_already(measured):
    rising = dict(zip(sorted(measured), sorted(measured.values()), strict=True))
    curve = Curve.fitted(rising.items())
    assert {rows: curve(rows) for rows in rising} == pytest.approx(rising)


@given(MEASURED, st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_no_other_rising_curve_is_nearer_to_what_was_measured(measured, other):
    rows = sorted(measured)
    fitted = Curve.fitted(measured.items())
    other = dict(zip(rows, sorted(other), strict=False))

    def misses(values):
        return sum((values[n] - measured[n]) ** 2 for n in rows)

    assert misses({n: fitted(n) for n in rows}) <= misses(other) + 1e-9


def test_a_step_costs_its_layers_its_heads_and_how_far_it_looks_back():
    model = CostModel(
        FLAT_THEN_LINEAR, denoise=Curve(((1, 0.002),)), read=Curve(((1, 0.001),)), pair_seconds=1e-6
    )
    assert model.seconds(StepRows(256)) == pytest.approx(0.012)
    assert model.seconds(StepRows(256, denoised=256)) == pytest.approx(0.014)
    assert model.seconds(StepRows(256, read=1, pairs=1000)) == pytest.approx(0.014)


def test_rows_are_counted_by_the_head_they_go_through():
    segments = [
        Segment(1, PROMPT, Phase.PREFILL, (0,) * 10, 100, NOTHING),
        Segment(2, PROMPT, Phase.COMMIT, (0,) * 4, 20, NOTHING),
        Segment(2, 1, Phase.DENOISE, (0,) * 4, 24, NOTHING),
        Segment(3, 0, Phase.DENOISE, (0,) * 8, 0, NOTHING, slots=(1, 2), label_ids=((1,), (2,))),
    ]
    pairs = 10 * 100 + 4 * 20 + 4 * 24
    assert rows_of(segments) == StepRows(rows=26, denoised=4, read=2, pairs=pairs)


@given(st.floats(0.001, 0.2), st.integers(0, 3000))
def test_no_step_within_the_chosen_budget_takes_longer_and_one_row_more_does(seconds, context):
    model = CostModel(FLAT_THEN_LINEAR, Curve(((256, 0.001), (2048, 0.02))), pair_seconds=1e-9)
    budget = model.largest_budget(seconds, 4096, context)

    def slowest(rows):
        return model.seconds(StepRows(rows, denoised=rows, pairs=rows * context))

    assert all(slowest(rows) <= seconds for rows in range(1, budget + 1, 61))
    assert budget == 0 or slowest(budget) <= seconds
    assert budget == 4096 or slowest(budget + 1) > seconds


def test_a_prompt_takes_as_long_as_its_chunks():
    model = CostModel(FLAT_THEN_LINEAR, pair_seconds=1e-7)
    whole = FLAT_THEN_LINEAR(1024) + FLAT_THEN_LINEAR(476) + 476 * 1024 * 1e-7
    assert model.prefill_seconds(1500, 1024) == pytest.approx(whole)
    assert model.prefill_seconds(0, 1024) == 0


def test_pages_are_swapped_when_copying_them_both_ways_is_faster_than_computing_them():
    assert prefers_swap(1000, copy_bytes_per_second=1e6, recompute_seconds=0.0021)
    assert not prefers_swap(1000, copy_bytes_per_second=1e6, recompute_seconds=0.0019)
    assert not prefers_swap(1, copy_bytes_per_second=None, recompute_seconds=100)


def test_the_error_of_a_model_is_its_worst():
    model = CostModel(Curve(((1, 1.0),)))
    assert relative_error(model, [(StepRows(1), 1.0), (StepRows(1), 0.8)]) == pytest.approx(0.25)
    assert relative_error(model, []) == 0
