"""`make profile`: steps within the engine's limits, a fit that finds known costs, one real run."""

import pytest

from build_engine.contract import PROFILE_FILE, load_contract
from build_engine.engine_dir import check_output
from plugins.spec import Phase
from tests.triton_backend.fakes import FakeRunner, make_contract
from triton_backend import profile
from triton_backend.cost_model import rows_of
from triton_backend.execute import run
from triton_backend.profile_file import load_profile
from triton_backend.profile_measure import (
    charge,
    copy_rate,
    grid,
    machine,
    measure,
    mixes,
    named,
    pages_wanted,
    table,
)
from triton_backend.profile_steps import StepMaker


class Engine:
    """Takes a known time for every step, on a clock of its own."""

    def __init__(self, seconds) -> None:
        self.now = 0.0
        self.seconds = seconds

    def __call__(self, step) -> None:
        self.now += self.seconds(rows_of(step.segments))

    def clock(self) -> float:
        return self.now


def true_cost(rows):
    floor = max(0.004, 0.0001 * rows.rows)
    return floor + 0.00002 * rows.denoised + 0.0003 * rows.read + 1e-7 * rows.pairs


def measured_of(seconds, contract=None):
    contract = contract or make_contract(max_step_tokens=256, max_segments=64, max_context=512)
    maker, engine = StepMaker(contract), Engine(seconds)
    said = []
    return maker, measure(maker, engine, 256, 5.0, said.append, engine.clock), said


def test_the_fit_finds_the_cost_that_steps_have():
    maker, measured, said = measured_of(true_cost)
    for rows, _ in [*measured.times, *measured.mixes]:
        charged = charge(maker, rows)
        assert measured.cost.seconds(charged) == pytest.approx(true_cost(charged), rel=0.02)
    assert measured.miss < 0.02 and len(measured.mixes) > 1
    assert measured.cost.pair_seconds == pytest.approx(1e-7, rel=0.01)
    assert len(said) == len(measured.times) + len(measured.mixes)


def test_a_cost_that_the_model_has_no_shape_for_shows_in_the_miss():
    _, measured, _ = measured_of(lambda rows: 0.01 + 0.05 * bool(rows.denoised and rows.read))
    assert measured.miss > 0.5


def test_a_step_is_charged_for_what_it_holds():
    maker = StepMaker(make_contract(max_step_tokens=256, max_segments=64))
    for rows in [*grid(maker, 256), *mixes(maker, 256)]:
        assert rows_of(maker.make(rows).segments) == charge(maker, rows), named(rows)


@pytest.mark.parametrize(
    "limits", [{}, {"max_segments": 3}, {"max_context": 20}, {"max_canvas": 3}]
)
def test_every_step_is_within_the_limits_and_runs_on_pages_of_its_own(limits):
    contract = make_contract(**limits)
    maker, runner = StepMaker(contract), FakeRunner(contract)
    pages = pages_wanted(maker, contract.limits.max_step_tokens)
    runner.create_pools(pages, pages)
    steps = grid(maker, contract.limits.max_step_tokens)
    for rows in [*steps, *mixes(maker, contract.limits.max_step_tokens)]:
        step = maker.make(rows)
        held = [page for segment in step.segments for page in segment.pages.full]
        assert len(held) == len(set(held)) and max(held) < pages
        assert len(step.segments) <= contract.limits.max_segments
        for segment in step.segments:
            assert segment.committed + len(segment.token_ids) <= contract.limits.max_context
        run(runner, step)
    phases = {segment.phase for rows in steps for segment in maker.make(rows).segments}
    assert phases == set(Phase)


def test_the_copied_bytes_count_both_ways_over_both_groups():
    contract = make_contract()

    class Copier:
        now, moved = 0.0, 0

        def create_host_pools(self, full, sliding):
            self.pools = full, sliding

        def move(self, saves, loads):
            assert all(move.slot < self.pools[move.sliding] for move in [*saves, *loads])
            sizes = [contract.group_page_bytes(move.sliding) for move in [*saves, *loads]]
            self.now += sum(sizes) / 3e9

    copier = Copier()
    assert copy_rate(copier, contract, lambda: copier.now) == pytest.approx(3e9)


def test_the_table_has_every_measurement_once():
    _, measured, _ = measured_of(true_cost)
    lines = list(table(measured))
    cells = sum(line.count(".") for line in lines)
    assert cells == len(measured.times) + len(measured.mixes)
    assert "misses a mix by at most" in lines[-1]


def test_the_machine_is_named_by_its_processor(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nmodel name\t: Some CPU\nmodel name\t: Some CPU\n")
    assert machine(path).startswith("Some CPU, ")
    assert machine(tmp_path / "absent").endswith("CPUs")


def test_a_real_engine_is_measured_into_its_directory(tiny_engine, tmp_path, capsys):
    engine = tmp_path / "engine"
    engine.mkdir()
    for path in tiny_engine.iterdir():
        (engine / path.name).symlink_to(path)
    options = ["--engine", str(engine), "--seconds", "1", "--rows", "32", "--threads", "1"]
    assert profile.main(options) == 0
    found = load_profile(engine)
    assert found is not None and found.threads == 1
    assert [rows for rows, _ in found.cost.layers.points] == [8, 16, 32]
    assert found.cost.layers.points[0][1] > 0 and found.copy_bytes_per_second > 0
    assert "GB/s" in capsys.readouterr().out
    load_contract(engine)


def test_a_measured_engine_may_be_built_again(tiny_engine, tmp_path):
    """The profile is a file that no build wrote, yet not the user's own."""
    output = tmp_path / "engine"
    output.mkdir()
    (output / "config.json").write_text((tiny_engine / "config.json").read_text())
    (output / PROFILE_FILE).write_text("{}")
    check_output(output, tmp_path / "checkpoint")


def test_an_engine_that_is_none_is_one_sentence(tmp_path, capsys):
    assert profile.main(["--engine", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no engine at ")
