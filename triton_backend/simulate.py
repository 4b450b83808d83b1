"""Command line of the simulator: `python -m triton_backend.simulate`; `--report` plays many."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from build_engine.errors import EngineError
from triton_backend.policy import Policy, Prefill
from triton_backend.simulation.arrivals import (
    WORKLOADS,
    Arrival,
    TraceError,
    recorded,
    synthetic,
)
from triton_backend.simulation.engine_model import engine_model
from triton_backend.simulation.setting import MODELS, Fleet, Model, Placement, Setting
from triton_backend.simulation.simulator import Simulator
from triton_backend.simulation.tables import describe


def parser() -> argparse.ArgumentParser:
    """Options of `python -m triton_backend.simulate`."""
    made = argparse.ArgumentParser(
        prog="python -m triton_backend.simulate",
        description="Play requests on the scheduler and KV cache with a cost model as the engine.",
    )
    made.add_argument("--model", choices=sorted(MODELS), default="diffusion-gemma")
    made.add_argument("--engine", type=Path, help="an engine with a profile.json instead")
    made.add_argument("--workload", choices=sorted(WORKLOADS), default="sharegpt")
    made.add_argument("--trace", type=Path, help="recorded arrivals instead, JSON lines")
    made.add_argument("--rate", type=_above_zero, default=4.0, help="requests a second")
    made.add_argument("--requests", type=_at_least_one, default=1000)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--placement", choices=[p.value for p in Placement], default="colocated")
    made.add_argument("--workers", type=_at_least_one, default=8, help="those that denoise")
    made.add_argument("--prefill-workers", type=_at_least_one, default=5, help="if apart")
    made.add_argument("--prefill", choices=[p.value for p in Prefill], default="")
    made.add_argument("--budget", type=_at_least_one, default=1024, help="rows of an execution")
    made.add_argument("--prefix-cache", action="store_true")
    made.add_argument("--no-strict-order", action="store_true")
    made.add_argument("--steps", type=_above_zero, default=12.0, help="of --engine: mean steps")
    made.add_argument("--max-steps", type=_at_least_one, default=48, help="of --engine: most")
    made.add_argument("--kv-pages", type=int, default=0, help="of --engine: pages")
    made.add_argument("--slo", type=_above_zero, default=30.0, help="seconds of a good request")
    made.add_argument("--warm-up", type=float, default=0.0, help="share that does not count")
    made.add_argument("--report", type=Path, help="run the report's simulations, write them here")
    made.add_argument("--processes", type=_at_least_one, default=os.cpu_count() or 1)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays one simulation and prints what it found, or all of the report's."""
    options = parser().parse_args(arguments)
    try:
        if options.report:
            return _report(options.report, options.processes)
        _play(options)
    except (EngineError, TraceError, OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _play(options: argparse.Namespace) -> None:
    setting = to_setting(options)
    simulator = Simulator(setting, _arrivals(options, setting.model))
    began = time.perf_counter()
    simulator.run(_progress(began) if sys.stderr.isatty() else lambda _: None)
    taken = time.perf_counter() - began
    summary = simulator.summary(options.warm_up)
    policy = setting.policy
    sys.stdout.write(
        f"{setting.model.name} on {setting.fleet.name}, {policy.prefill.value} prefill, budget "
        f"{policy.token_budget}; {setting.model.source}\n"
    )
    for line in describe(summary, setting.slo):
        sys.stdout.write(f"  {line}\n")
    sys.stdout.write(
        f"simulated in {taken:.1f} s, {taken / summary.requests * 1e6:.0f} us a request, "
        f"{taken / summary.steps * 1e6:.0f} us an execution\n"
    )


def to_setting(options: argparse.Namespace) -> Setting:
    """The one place where options become a Setting."""
    model = MODELS[options.model]
    if options.engine is not None:
        model = engine_model(options.engine, options.kv_pages, options.steps, options.max_steps)
    placement = Placement(options.placement)
    apart = placement is not Placement.COLOCATED
    fleet = Fleet(placement, options.workers, options.prefill_workers if apart else 0)
    chosen = options.prefill or ("deficit" if model.recomputes else "chunked")
    policy = Policy(
        fusion=not model.recomputes,
        prefill=Prefill(chosen),
        token_budget=min(options.budget, model.limits.max_tokens),
        strict=not options.no_strict_order,
    )
    if policy.token_budget < model.canvas:
        raise ValueError(
            f"--budget is {options.budget}, a canvas of {model.name} has {model.canvas} rows; "
            "give at least as many."
        )
    return Setting(model, fleet, policy, options.prefix_cache, slo=options.slo)


def _arrivals(options: argparse.Namespace, model: Model) -> Iterable[Arrival]:
    if options.trace is not None:
        return recorded(options.trace, model, options.seed)
    workload = WORKLOADS[options.workload]
    return synthetic(workload, model, options.rate, options.requests, options.seed)


def _progress(began: float) -> Callable[[int], None]:
    def show(done: int) -> None:
        sys.stderr.write(f"\r{done} requests, {time.perf_counter() - began:.0f} s ")

    return show


def _report(directory: Path, processes: int) -> int:
    # Deferred, since it draws with matplotlib, which only developers have.
    from triton_backend.simulation.report import write_report  # noqa: PLC0415

    write_report(directory, processes, _say)
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few, 1 is the least")
    return value


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
