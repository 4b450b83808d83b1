"""Cases: which are dropped, what they become in JSON, and tables that name what there is."""

import importlib
import inspect
import json

import pytest

from benchmarks.gpu import BUDGETS
from benchmarks.gpu_cases import (
    SPARE_GIB,
    Case,
    Finding,
    Outcome,
    Timed,
    chosen,
    reason_to_drop,
)
from benchmarks.gpu_tables import BENCHES, CHECKS, TABLES

CASE = Case("part: name", "module:function", seconds=20, gib=4)


def test_a_case_that_fits_is_not_dropped():
    assert reason_to_drop(CASE, 20, 4 + SPARE_GIB) == ""


def test_a_case_is_dropped_for_time_or_memory_and_says_which():
    assert reason_to_drop(CASE, 19.9, 100) == "needs 20 s, 20 s of the budget are left"
    assert "needs 5.0 GiB of memory, 4.9 are free" in reason_to_drop(CASE, 1000, 4.9)


def test_a_spent_budget_is_told_as_zero():
    assert reason_to_drop(CASE, -30, 100).endswith("0 s of the budget are left")


def test_only_chooses_by_any_text_and_keeps_the_order():
    assert chosen(BENCHES, []) == list(BENCHES)
    found = chosen(BENCHES, ["experts:", "ceilings:"])
    assert [case.part for case in found] == ["ceilings", "experts", "experts", "experts"]
    assert chosen(BENCHES, ["no such thing"]) == []


def test_an_outcome_survives_json_and_infinities_become_numbers():
    outcome = Outcome("part: name", seconds=1.5)
    outcome.add(Finding("far", float("inf"), 1.0))
    outcome.add(Timed("group", "path", None, 2.0, bytes=8))
    again = Outcome.from_json(json.loads(json.dumps(outcome.to_json(), allow_nan=False)))
    assert again.status == "off"
    assert again.findings[0].error == 1e30
    assert again.timings == outcome.timings


def test_nan_is_never_within_a_bound():
    outcome = Outcome("part: name")
    outcome.add(Finding("broken", float("nan"), 1.0))
    assert outcome.status == "off"


def test_the_first_finding_out_of_bounds_is_the_reason():
    outcome = Outcome("part: name")
    outcome.add(Finding("told", 9.0))
    assert outcome.status == "ok"
    outcome.add(Finding("first", 0.5, 0.1))
    outcome.add(Finding("second", 0.7, 0.1))
    assert (outcome.status, outcome.reason) == ("off", "first: 0.5 > 0.1")


@pytest.mark.parametrize("kind", TABLES)
def test_names_are_unique(kind):
    names = [case.name for case in TABLES[kind]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [*CHECKS, *BENCHES], ids=lambda case: case.name)
def test_every_case_names_a_function_that_takes_its_arguments(case):
    module, _, name = case.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    inspect.signature(function).bind(None, **case.arguments)


def test_the_important_cases_fit_in_the_budget_at_their_longest():
    """The ceilings, the read and the first attention, which the goals are about."""
    assert [case.part for case in BENCHES[:3]] == ["ceilings", "read", "attention"]
    assert sum(case.seconds for case in BENCHES[:12]) < BUDGETS["bench"]
