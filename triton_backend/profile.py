"""Command line that measures an engine here: `python -m triton_backend.profile --engine DIR`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from build_engine.contract import load_contract
from build_engine.errors import EngineError
from triton_backend.kv_cache import KvShape
from triton_backend.kv_sizes import check_memory
from triton_backend.memory import available_bytes
from triton_backend.profile_file import Profile, engine_identity
from triton_backend.profile_measure import (
    copy_rate,
    executed_by,
    machine,
    measure,
    pages_wanted,
    table,
)
from triton_backend.profile_steps import StepMaker
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner, pools_in_host_memory

_EXAMPLES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def parser() -> argparse.ArgumentParser:
    """Options of `python -m triton_backend.profile`."""
    made = argparse.ArgumentParser(
        prog="python -m triton_backend.profile",
        description="Measure an engine's step times on this machine into its profile.json.",
    )
    made.add_argument("--engine", type=Path, required=True, help="directory made by build_engine")
    made.add_argument("--threads", type=int, default=0, help="CPU threads (default: every core)")
    made.add_argument("--seconds", type=float, default=90.0, help="about how long (%(default)s)")
    made.add_argument("--rows", type=int, default=0, help="most rows (default: the engine's limit)")
    return made


def profile_engine(engine: Path, threads: int, seconds: float, rows: int) -> Profile:
    """Measures an engine; writes nothing.

    Raises:
        EngineError: it does not load, or this machine has no room for its pools.
    """
    contract = load_contract(engine)
    maker = StepMaker(contract)
    most = min(rows or contract.limits.max_step_tokens, contract.limits.max_step_tokens)
    pages = pages_wanted(maker, most)
    if pools_in_host_memory(contract):
        shape = KvShape(contract.page_size, contract.window, pages, pages)
        check_memory(contract, shape, available_bytes())
    runner = open_runner(engine, contract, RunnerOptions(threads))
    runner.create_pools(pages, pages)
    measured = measure(maker, executed_by(runner), most, seconds, _say)
    rate = copy_rate(runner, contract)
    for line in table(measured):
        sys.stdout.write(line + "\n")
    sys.stdout.write(f"pages are copied at {rate / 1e9:.2f} GB/s\n")
    return Profile(
        engine=engine_identity(engine),
        machine=machine(),
        threads=threads or len(os.sched_getaffinity(0)),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cost=measured.cost,
        copy_bytes_per_second=rate,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, writes the profile, prints the table; 1 if the engine cannot be measured."""
    options = parser().parse_args(arguments)
    try:
        found = profile_engine(options.engine, options.threads, options.seconds, options.rows)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    most = found.cost.layers.points[-1][0]
    for target in _EXAMPLES:
        budget = found.cost.largest_budget(target, most)
        if 0 < budget < most:
            sys.stdout.write(f"step_seconds {target:g} gives a token budget of {budget} rows\n")
    sys.stdout.write(f"wrote {found.save(options.engine)}\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
