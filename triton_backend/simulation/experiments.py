"""The simulations of the report: which settings, loads and seeds; runs them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from statistics import mean

from triton_backend.policy import Policy, Prefill
from triton_backend.simulation.arrivals import WORKLOADS, synthetic
from triton_backend.simulation.results import Summary
from triton_backend.simulation.setting import (
    DIFFUSION_GEMMA,
    LLADA,
    Fleet,
    Placement,
    Setting,
)
from triton_backend.simulation.simulator import simulate

PAIR = Fleet(Placement.COLOCATED, 2)
COLOCATED = Fleet(Placement.COLOCATED, 8)
DISAGGREGATED = Fleet(Placement.DISAGGREGATED, 3, 5)
HYBRID = Fleet(Placement.HYBRID, 3, 5)
FIVE_TO_THREE = (COLOCATED, DISAGGREGATED, HYBRID)
ONE_TO_SEVEN = (COLOCATED, Fleet(Placement.DISAGGREGATED, 7, 1), Fleet(Placement.HYBRID, 7, 1))
BUDGETS = (512, 1024, 2048, 16384)
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Point:
    """One simulation but for its seed; `label` is its line in a plot."""

    label: str
    setting: Setting
    workload: str
    rate: float
    requests: int

    def run(self, seed: int) -> Summary:
        """Plays it."""
        drawn = synthetic(
            WORKLOADS[self.workload], self.setting.model, self.rate, self.requests, seed
        )
        return simulate(self.setting, drawn)


def llada(fleet: Fleet, budget: int) -> Setting:
    """Block diffusion with prompts that cannot be divided, under the deficit rule."""
    policy = Policy(fusion=False, prefill=Prefill.DEFICIT, token_budget=budget)
    return Setting(LLADA, fleet, policy)


def gemma(fleet: Fleet, budget: int, prefill: Prefill) -> Setting:
    """DiffusionGemma's canvases over a causal context."""
    return Setting(DIFFUSION_GEMMA, fleet, Policy(prefill=prefill, token_budget=budget))


def budget_sweep(rates: Iterable[float], requests: int) -> list[Point]:
    """Budgets of the deficit rule."""
    return [
        Point(f"t = {budget}", llada(COLOCATED, budget), "sharegpt", rate, requests)
        for rate in rates
        for budget in BUDGETS
    ]


def placements(
    settings: Iterable[Setting], workload: str, rates: Iterable[float], requests: int
) -> list[Point]:
    """The same model on different fleets."""
    settings = tuple(settings)
    return [
        Point(setting.fleet.name, setting, workload, rate, requests)
        for rate in rates
        for setting in settings
    ]


def prefills(budget: int, rates: Iterable[float], requests: int) -> list[Point]:
    """How prompts share executions with canvases."""
    return [
        Point(prefill.value, gemma(PAIR, budget, prefill), "arxiv", rate, requests)
        for rate in rates
        for prefill in Prefill
    ]


def run_all(
    points: Mapping[str, list[Point]],
    seeds: Iterable[int],
    processes: int,
    report: Callable[[str], None],
) -> dict[str, list[tuple[Point, Summary]]]:
    """Every point with every seed, averaged over these (of gaps and sizes, the largest)."""
    jobs = [(name, n, seed) for name in points for n in range(len(points[name])) for seed in seeds]
    found: dict[tuple[str, int], list[Summary]] = {}
    with ProcessPoolExecutor(processes) as pool:
        futures = {pool.submit(points[name][n].run, seed): (name, n) for name, n, seed in jobs}
        for number, future in enumerate(as_completed(futures), 1):
            found.setdefault(futures[future], []).append(future.result())
            report(f"[{number}/{len(jobs)}] {futures[future][0]}")
    return {
        name: [(point, average(found[name, n])) for n, point in enumerate(points[name])]
        for name in points
    }


_LARGEST = ("largest_gap", "longest_step", "most_running", "kv_most")


def average(found: list[Summary]) -> Summary:
    """Of several seeds: means, and the largest of what is a largest."""
    values = {
        field.name: (max if field.name in _LARGEST else mean)(
            getattr(one, field.name) for one in found
        )
        for field in fields(Summary)
    }
    return replace(found[0], **values)
