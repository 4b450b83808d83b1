"""The JSON of a run: what is accepted, what is refused, and ratios against numbers by hand."""

import copy
import json

import pytest

from benchmarks.gpu_cases import Finding, Outcome, Timed
from benchmarks.gpu_document import Heading, ceilings_of, document, goals_of, problems
from benchmarks.gpu_report import bench_lines, check_lines, good, summary

HEADING = Heading("bench", "NVIDIA H200", "2026-11-30T12:00:00+00:00", {"torch": "2.13"}, 9.0, 450)


def outcome(name: str, *found: Finding | Timed, **fields: object) -> Outcome:
    made = Outcome(name, **fields)
    for one in found:
        made.add(one)
    return made


def run() -> list[Outcome]:
    """4000 GB/s and 800 TFLOP/s; a floor of 12.5 ms for 50 GB."""
    read = "1 x 512 + 256 tokens, 30 layers"
    return [
        outcome(
            "ceilings: copy and product",
            Timed("ceilings", "copy", 1.0, 1.0, bytes=4_000_000_000),
            Timed("ceilings", "matmul", 1.0, 1.1, flops=800_000_000_000),
        ),
        outcome(
            "read: prompt of 512",
            Timed(read, "fused", 15.0, 40.0, bytes=50_000_000_000, flops=4_000_000_000_000),
            Timed(read, "split", 27.0, 70.0, bytes=100_000_000_000),
        ),
        outcome(
            "attention: canvas",
            Finding("canvas", 0.001, 0.01),
            Timed("canvas", "dg", 0.2, 0.3, flops=10**9),
            Timed("canvas", "dg with page write", 0.25, 0.4),
            Timed("canvas", "sdpa grouped", 0.3, 0.3),
            Timed("canvas", "sdpa expanded", None, 0.1, note="not captured"),
            Timed("canvas", "flex_attention", 0.4, 0.5),
        ),
        outcome("experts: 16 rows", Timed("16 rows", "dg", 1, 1), Timed("16 rows", "torch", 2, 2)),
        outcome("heads: late", status="dropped", reason="needs 20 s, 3 s of the budget are left"),
    ]


def test_ratios_are_those_worked_out_by_hand():
    goals = {goal.what: goal for goal in goals_of(run())}
    floor = goals["fused read / memory floor, 1 x 512 + 256 tokens, 30 layers"]
    assert floor.value == pytest.approx(15 / 12.5)
    assert floor.met
    # SDPA counts with its faster path, which could not be captured here.
    share = goals["attention, share of SDPA's speed, canvas"]
    assert share.value == pytest.approx(0.1 / 0.2)
    assert not share.met
    assert goals["attention, share of flex_attention's speed, canvas"].value == pytest.approx(2)
    assert goals["torch / dg, 16 rows"].value == 2
    split = goals["split read / fused read, 1 x 512 + 256 tokens, 30 layers"]
    assert split.value == pytest.approx(27 / 15)


def test_only_the_read_that_is_asked_about_has_a_goal():
    outcomes = run()
    timing = Timed("4 x 512 + 256 tokens", "fused", 99.0, 99.0, bytes=50_000_000_000)
    goals = goals_of([outcomes[0], outcome("read: 4", timing)])
    assert [(goal.most, goal.met) for goal in goals] == [(None, True)]


def test_without_ceilings_there_is_no_floor_but_all_else():
    whats = [goal.what for goal in goals_of(run()[1:])]
    assert ceilings_of(run()[1:]) is None
    assert not any("floor" in what for what in whats)
    assert len(whats) == 4


def test_a_document_is_accepted_as_it_comes_back_from_its_file():
    written = json.loads(json.dumps(document(HEADING, run()), allow_nan=False))
    assert problems(written) == []
    assert written["ceilings"] == {"copy": 4000, "matmul": 800}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("device"), "'device'"),
        (lambda d: d.update(more=1), "'more'"),
        (lambda d: d.update(seconds="9"), "document.seconds"),
        (lambda d: d.update(format=99), "format 99"),
        (lambda d: d["cases"][0].update(status="fine"), "status 'fine'"),
        (lambda d: d["cases"][0]["timings"][0].update(ms="1"), "cases[0].timings[0].ms"),
        (lambda d: d["cases"][2]["findings"][0].pop("bound"), "cases[2].findings[0]"),
        (lambda d: d["goals"][0].update(met=1), "goals[0].met"),
        (lambda d: d["goals"].append(3), "goals[5]: is no object"),
    ],
)
def test_a_document_with_a_fault_is_refused_and_the_fault_named(change, message):
    values = copy.deepcopy(document(HEADING, run()))
    change(values)
    assert any(message in problem for problem in problems(values)), problems(values)


def test_the_table_has_shares_of_the_ceilings_goals_and_what_was_dropped():
    lines = "\n".join(bench_lines(run()))
    row = next(line for line in lines.splitlines() if "  fused " in line)
    # 50 GB in 15 ms are 3333 GB/s, 83 % of the copy; 4 TFLOP are 267 TFLOP/s, a third of 800.
    assert row.split()[-6:] == ["15.000", "40.000", "3333", "83%", "266.7", "33%"]
    assert "<= 1.4  met" in lines
    assert ">= 0.6  NOT MET" in lines
    assert "dropped: heads: late (needs 20 s, 3 s of the budget are left)" in lines
    assert "note: canvas, sdpa expanded: not captured" in lines


def test_the_table_of_a_check_names_what_is_nearest_to_its_bound():
    fine = outcome("a: fine", Finding("near", 0.9, 1.0), Finding("exact", 0.0, 0.0))
    wrong = outcome("b: wrong", Finding("pages", 1.0, 0.0))
    lines = list(check_lines([fine, wrong]))
    assert "9.0e-01 of 1.0e+00 (near)" in lines[1]
    assert "pages: 1 > 0" in lines[2]


def test_a_run_is_good_if_something_ran_and_nothing_went_wrong():
    fine, dropped = Outcome("a"), Outcome("b", "dropped")
    assert good([fine, dropped])
    assert not good([dropped])
    assert not good([])
    assert not any(good([fine, Outcome("c", status)]) for status in ("off", "failed", "crashed"))
    assert summary([fine, dropped], 12.3) == "2 cases in 12 s: 1 ok, 1 dropped"
