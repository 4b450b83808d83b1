"""Supervision of real worker processes: none of them takes the others' cases with it."""

import pytest

from benchmarks.gpu_cases import Case, Outcome
from benchmarks.gpu_parent import Plan, WorkerError, run_cases


def run(names: list[str], kind: str = "any", budget: float = 100, **case: float) -> list[Outcome]:
    cases = [Case(name, "", **{"seconds": 1, **case}) for name in names]
    plan = Plan(kind, cases, budget, False, 5.0, "tests.benchmarks.unruly_worker")
    told: list[tuple[int, str]] = []
    done = run_cases(plan, lambda number, outcome: told.append((number, outcome.name)))
    assert told == list(enumerate(names))
    return done.outcomes


@pytest.mark.parametrize("unruly", ["die", "lose", "fail"])
def test_cases_go_on_after_one_that_ends_or_loses_its_worker(unruly):
    outcomes = run(["one", unruly, "two"])
    statuses = [outcome.status for outcome in outcomes]
    assert statuses == ["ok", "crashed" if unruly == "die" else "failed", "ok"]


def test_a_dead_worker_leaves_its_last_words():
    assert run(["die"])[0].reason == "the worker ended with code 9: out of luck"


def test_a_case_that_hangs_is_given_up():
    outcomes = run(["hang", "after"])
    assert [outcome.status for outcome in outcomes] == ["crashed", "ok"]
    assert outcomes[0].reason == "no answer in 5 s"


def test_what_does_not_fit_in_the_budget_is_dropped_and_told():
    outcomes = run(["one", "two"], budget=10, seconds=11)
    assert [outcome.status for outcome in outcomes] == ["dropped", "dropped"]
    assert "s of the budget are left" in outcomes[0].reason


def test_memory_is_that_which_the_worker_last_said():
    outcomes = run(["fill", "large"], gib=4)
    assert [outcome.status for outcome in outcomes] == ["ok", "dropped"]
    assert "2.0 are free" in outcomes[1].reason


def test_no_device_is_one_sentence():
    with pytest.raises(WorkerError, match="^there is no device here$"):
        run(["one"], kind="nowhere")
