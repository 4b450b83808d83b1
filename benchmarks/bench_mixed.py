"""Reads and generations mixed, in an open loop: how long reads wait behind long prompts.

Poisson arrivals at 80 % of what the engine takes at most, the same ones for both policies: plain
first come, first served with whole prompts, and this server's (chunked prompts, a token budget,
reads of a higher priority). Mid-size checkpoint. Run: python -m benchmarks.bench_mixed
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.bench_generate import NEVER
from benchmarks.midsize import midsize_engine
from benchmarks.parity_generation import generation
from benchmarks.session import Session, read_request
from benchmarks.timing import emit
from triton_backend.core import Reply, Request
from triton_backend.execute import run
from triton_backend.policy import Policy, Prefill
from triton_backend.scheduler import Scheduler

LOAD, READ_SHARE, GOAL = 0.8, 0.85, 0.5
READ_PROMPT, READ_CANVAS, LONGEST = (48, 160), 16, 3000
POLICIES = {
    "plain FCFS, whole prompts": Policy(prefill=Prefill.FIRST),
    "this server": Policy(token_budget=256),
}
console = Console(stderr=True)


@dataclass(frozen=True)
class Arrival:
    """A request and when it comes, in seconds from the start."""

    at: float
    request: Request


def requests(session: Session, count: int) -> list[Request]:
    """Mostly reads of short prompts; generations of two canvases behind prompts of any length."""
    drawn = random.Random(1)
    vocabulary = session.contract.geometry.vocab_size
    made = []
    for key in range(count):
        if drawn.random() < READ_SHARE:
            prompt = drawn.choices(range(10, vocabulary), k=drawn.randint(*READ_PROMPT))
            canvas = drawn.choices(range(10, vocabulary), k=READ_CANVAS)
            made.append(read_request(key, prompt, canvas, (3,)))
        else:
            length = min(int(drawn.lognormvariate(6.8, 0.7)), LONGEST)
            prompt = drawn.choices(range(10, vocabulary), k=length)
            asked = generation(session, key, prompt, 2, **NEVER)
            assert asked.generation is not None
            endless = replace(asked.generation, stop_ids=frozenset())
            made.append(replace(asked, generation=endless, priority=1))
    return made


def serve(session: Session, policy: Policy, arrivals: Sequence[Arrival]) -> dict[int, float]:
    """Seconds from each request's arrival to its reply."""
    scheduler = session.scheduler_of(policy)
    waiting, replied = list(reversed(arrivals)), dict[int, float]()
    started = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("serving", total=len(arrivals))
        while waiting or scheduler.has_work:
            now = time.perf_counter() - started
            while waiting and waiting[-1].at <= now:
                arrival = waiting.pop()
                scheduler.add(arrival.request, arrival.at)
            if not scheduler.has_work:
                time.sleep(max(0.0, waiting[-1].at - now))
                continue
            for reply in _step(session, scheduler, now):
                replied[reply.request.key] = time.perf_counter() - started
                progress.advance(task)
    return {arrival.request.key: replied[arrival.request.key] - arrival.at for arrival in arrivals}


def _step(session: Session, scheduler: Scheduler, now: float) -> list[Reply]:
    step = scheduler.schedule(now)
    news = scheduler.record(step, run(session.tap, step))
    return [one for one in news if isinstance(one, Reply)]


def capacity(session: Session, asked: Sequence[Request]) -> float:
    """Requests a second when all are there from the start."""
    started = time.perf_counter()
    serve(session, POLICIES["this server"], [Arrival(0.0, request) for request in asked])
    return len(asked) / (time.perf_counter() - started)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the others does not exceed."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints latencies by policy; 1 if reads do not gain what they should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=240)
    count = parser.parse_args(arguments).requests
    session = Session(midsize_engine("float32"), pages=2048)
    asked = requests(session, count)
    rate = LOAD * capacity(session, asked[: count // 3])
    drawn, at, arrivals = random.Random(2), 0.0, []
    for request in asked:
        at += drawn.expovariate(rate)
        arrivals.append(Arrival(at, request))
    console.print(f"{rate:.2f} requests a second, {LOAD:.0%} of capacity")
    table = Table("policy", "kind", "mean ms", "P50 ms", "P99 ms")
    worst = {}
    for name, policy in POLICIES.items():
        seconds = serve(session, policy, arrivals)
        for kind, wants in (("reads", True), ("generations", False)):
            of = [seconds[one.key] for one in asked if (one.generation is None) is wants]
            figures = [statistics.mean(of), percentile(of, 0.5), percentile(of, 0.99)]
            table.add_row(name, kind, *(f"{value * 1e3:.0f}" for value in figures))
            emit("p99", figures[2], policy=name, kind=kind)
            if wants:
                worst[name] = figures[2]
    Console().print(table)
    plain, ours = worst.values()
    print(f"P99 of reads, this server / plain FCFS: {ours / plain:.3f} (at most {GOAL})")
    return int(ours > GOAL * plain)


if __name__ == "__main__":
    sys.exit(main())
