"""The dashboard asks only for what the server shows, leaves nothing out, and lies on its grid."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.triton_backend.fakes import make_scheduler
from triton_backend import metric_families
from triton_backend.metric_families import Family
from triton_backend.metrics import values

FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "diffusiongemma.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWING = [panel for panel in PANELS if panel["type"] != "row"]
FAMILIES = {one.name: one for one in vars(metric_families).values() if isinstance(one, Family)}
SHOWN = {(family.name, label) for family, label in values(make_scheduler(), True, 1)}
SELECTOR = re.compile(r"([A-Za-z_]\w*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!=|!~|=)"([^"]*)"')


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def family_of(name: str) -> Family:
    """The family of a sample; only histograms have samples of other names."""
    if name in FAMILIES:
        assert FAMILIES[name].kind != "histogram", f"{name} is a histogram, it has no sample"
        return FAMILIES[name]
    found = FAMILIES.get(re.sub("_(bucket|sum|count)$", "", name))
    assert found is not None and found.kind == "histogram", f"{name} is shown by no server"
    return found


@pytest.mark.parametrize("panel", SHOWING, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_and_labels_that_exist(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        assert expression.count("(") == expression.count(")")
        selectors = SELECTOR.findall(expression)
        assert selectors, "an expression without a metric"
        for name, matchers in selectors:
            family = family_of(name)
            for label, how, value in MATCHER.findall(matchers):
                assert label in ("model", "instance", family.label)
                if label == family.label:
                    wanted = value.split("|") if "~" in how else [value]
                    assert {(family.name, one) for one in wanted} <= SHOWN


@pytest.mark.parametrize("panel", SHOWING, ids=lambda panel: panel["title"])
def test_counters_are_shown_as_rates_and_gauges_as_they_are(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        for name, _ in SELECTOR.findall(expression):
            rated = f"rate({name}{{" in expression
            counts = family_of(name).kind != "gauge" or "iteration_counter" in expression
            assert rated == counts, expression


@pytest.mark.parametrize("panel", SHOWING, ids=lambda panel: panel["title"])
def test_what_is_grouped_by_is_a_label_and_legends_name_only_that(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        names = {family_of(name).label for name, _ in SELECTOR.findall(target["expr"])} | {"le"}
        groups = re.findall(r"by \((\w+)\)", target["expr"])
        assert set(groups) <= names
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(groups)


def test_every_metric_of_the_server_is_on_the_dashboard() -> None:
    found = {
        family_of(name).name
        for panel in SHOWING
        for expression in expressions(panel)
        for name, _ in SELECTOR.findall(expression)
    }
    assert found == set(FAMILIES)


def test_it_has_what_grafana_needs_to_import_it() -> None:
    for name, kind in (("title", str), ("uid", str), ("schemaVersion", int), ("templating", dict)):
        assert isinstance(DASHBOARD[name], kind)
    assert DASHBOARD["schemaVersion"] >= 36
    assert len(DASHBOARD["uid"]) <= 40
    variables = {one["name"]: one["type"] for one in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "model": "query", "instance": "query"}
    for panel in SHOWING:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert {"title", "description", "fieldConfig", "options"} <= set(panel)
        letters = [target["refId"] for target in panel["targets"]]
        assert len(letters) == len(set(letters)) > 0
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_panels_lie_on_the_grid_and_on_no_other() -> None:
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and place["y"] >= 0
        assert 0 <= place["x"] <= 24 - place["w"]
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
        down = one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]
        assert not (across and down)
