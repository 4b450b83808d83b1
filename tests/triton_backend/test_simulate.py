"""The simulator's command line: one table, a trace, an engine's profile, the whole report."""

import json

import pytest

from triton_backend import simulate
from triton_backend.cost_model import CostModel, Curve
from triton_backend.policy import Prefill
from triton_backend.profile_file import Profile, engine_identity
from triton_backend.simulation import report
from triton_backend.simulation.experiments import Point, gemma, llada
from triton_backend.simulation.setting import Fleet, Placement

SHORT = ["--requests", "30", "--rate", "3", "--workers", "2"]


def lines_of(capsys) -> dict[str, str]:
    """What is printed, by the first word or two of each line."""
    found = capsys.readouterr().out.splitlines()
    return {line[2:18].strip(): line[18:] for line in found if line.startswith("  ")}


def test_one_simulation_prints_all_that_it_found(capsys):
    assert simulate.main(SHORT) == 0
    found = lines_of(capsys)
    assert found["requests"].startswith("30 in ")
    for name in ("latency", "first canvas", "goodput", "step gap", "KV pages", "preemptions"):
        assert name in found


@pytest.mark.parametrize("placement", [placement.value for placement in Placement])
@pytest.mark.parametrize("model", ["llada", "diffusion-gemma"])
def test_every_placement_of_every_model_is_played(capsys, model, placement):
    options = ["--model", model, "--placement", placement, "--prefill-workers", "1"]
    assert simulate.main(["--requests", "3", "--workers", "1", *options]) == 0
    assert lines_of(capsys)["requests"].startswith("3 in ")


def test_a_recorded_trace_is_played(capsys, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"at": {n}, "prompt": 50, "output": 9}}\n' for n in range(4)))
    assert simulate.main(["--trace", str(trace), "--workers", "1"]) == 0
    assert lines_of(capsys)["requests"].startswith("4 in ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budget", "255"], "--budget is 255, a canvas of diffusion-gemma has 256 rows"),
        (["--trace", "/nowhere"], "No such file"),
        (["--engine", "/nowhere"], "no engine at /nowhere"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(capsys, options, says):
    assert simulate.main(options) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and says in error and error.count("\n") == 1


@pytest.mark.parametrize("option", ["--rate", "--requests", "--workers", "--slo"])
def test_no_count_may_be_zero(option, capsys):
    with pytest.raises(SystemExit):
        simulate.main([option, "0"])
    assert option in capsys.readouterr().err


def test_an_engine_without_a_profile_is_one_sentence(tiny_engine, capsys):
    assert simulate.main(["--engine", str(tiny_engine)]) == 1
    assert "has no profile.json; run `make profile` first" in capsys.readouterr().err


def test_an_engine_is_played_at_its_measured_speed(tiny_engine, tmp_path, capsys):
    config = tiny_engine / "config.json"
    (tmp_path / "config.json").write_text(config.read_text())
    cost = CostModel(Curve(((1, 0.25),)))
    Profile(engine_identity(tmp_path), "one", 1, "today", cost, None).save(tmp_path)
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"at": 0, "prompt": 5, "steps": [3]}))
    options = ["--engine", str(tmp_path), "--trace", str(trace), "--workers", "1"]
    assert simulate.main(options) == 0
    assert "mean 0.750" in lines_of(capsys)["latency"]


def test_the_report_is_written_with_its_plots(tmp_path, monkeypatch, capsys):
    one, both = Fleet(Placement.COLOCATED, 1), Fleet(Placement.HYBRID, 1, 1)
    apart = Fleet(Placement.DISAGGREGATED, 1, 1)

    def points(requests):
        fleets = [("8C", one), ("5P3D", apart), ("5P3C", both)]
        placed = [
            Point(label, llada(fleet, 1024), "sharegpt", rate, requests)
            for rate in (3, 5, 6)
            for label, fleet in fleets
        ]
        return {
            "budgets": [Point("t = 1024", llada(one, 1024), "sharegpt", 6, requests)],
            "placements": placed,
            "arxiv": placed[:3],
            "prefills": [
                Point(kind.value, gemma(one, 2048, kind), "sharegpt", 8, requests)
                for kind in Prefill
            ],
            "gemma": [Point("8C", gemma(one, 1024, Prefill.CHUNKED), "sharegpt", 8, requests)],
        }

    monkeypatch.setattr(report, "points", points)
    said = []
    report.write_report(tmp_path, 1, said.append, requests=2)
    page = (tmp_path / "simulation.md").read_text()
    for name in ("budgets", "placements", "prefills", "gemma"):
        assert f"simulation/{name}.png" in page
        assert (tmp_path / "simulation" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "Every figure here is simulated" in page
    assert page.count("| 3/s |") == 6
    assert len(said) == 3 * 17
    assert "lowest P99" in capsys.readouterr().out
