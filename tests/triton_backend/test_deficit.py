"""The deficit budget: golden vectors, and that nobody waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from triton_backend.deficit import DeficitBudget


def always(_: int) -> bool:
    return True


def serve(budget, running, queue, steps):
    """(admitted, deficit) of each step, what is admitted leaving the queue."""
    queue, seen = list(queue), []
    for _ in range(steps):
        admitted = budget.admit(running, queue, always)
        del queue[: len(admitted)]
        seen.append((admitted, budget.deficit))
    return seen


def test_what_a_blocked_head_cannot_use_is_saved_for_it():
    assert serve(DeficitBudget(1024), 16 * 32, [1500, 700, 100], 6) == [
        ([], 512), ([], 1024), ([1500], 36), ([], 548), ([700, 100], 260), ([], 0),
    ]  # fmt: skip


def test_an_oversized_unit_runs_in_an_empty_step():
    budget = DeficitBudget(1024)
    assert budget.admit(0, [5000, 900], always) == [5000]
    assert budget.deficit == 0
    assert budget.admit(32, [900], always) == [900]
    assert budget.deficit == 92


def test_over_budget_already_nothing_is_admitted_nor_saved():
    assert serve(DeficitBudget(1024), 40 * 32, [100], 3) == [([], 0)] * 3


def test_a_stop_for_memory_banks_nothing():
    budget = DeficitBudget(1024)
    budget.deficit = 500
    assert budget.admit(512, [100], lambda _: False) == []
    assert budget.deficit == 500
    budget = DeficitBudget(612)
    budget.deficit = 200
    assert budget.admit(512, [150, 90], lambda length: length == 150) == [150]
    assert budget.deficit == 150


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=20), st.integers(0, 900))
def test_every_unit_gets_its_turn_in_order(queue, running):
    budget = DeficitBudget(1024)
    base = 1024 - running
    most = sum(-(-length // base) + 1 for length in queue)
    admitted = [length for step, _ in serve(budget, running, queue, most) for length in step]
    assert admitted == queue
