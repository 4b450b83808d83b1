"""One structured read on the mid-size checkpoint: transformers against the engine, in one run.

Run: python -m benchmarks.bench_read
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from transformers.utils import logging as transformers_logging

from benchmarks.hf_peer import HfPeer
from benchmarks.machine_floor import floor_seconds
from benchmarks.midsize import midsize_checkpoint, midsize_engine
from benchmarks.read_report import MOST_REST_MIB, Figures, Reading, write_report
from benchmarks.session import Policy, Session, read_request
from benchmarks.timing import alternate, emit, medians
from triton_backend.core import Request

PROMPT, CANVAS, SLOTS = 128, 32, (5, 13, 21)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PAGES = 512
FUSED, SPLIT = Policy(), Policy(fusion=False)
console = Console(stderr=True)


def make_reads(count: int, vocab_size: int) -> list[Request]:
    """Reads of random tokens: three slots in a canvas of 32 after a prompt of 128."""
    rng = random.Random(0)

    def tokens(length: int) -> list[int]:
        return rng.choices(range(vocab_size), k=length)

    return [read_request(n, tokens(PROMPT), tokens(CANVAS), SLOTS) for n in range(count)]


def _tensors(requests: list[Request]) -> tuple[torch.Tensor, torch.Tensor]:
    prompts = torch.tensor([request.prompt_ids for request in requests])
    return prompts, torch.tensor([request.canvases[0].ids for request in requests])


def _paths(
    peer: HfPeer, session: Session, requests: list[Request]
) -> dict[str, Callable[[], object]]:
    prompts, canvases = _tensors(requests)
    paths: dict[str, Callable[[], object]] = {
        "split": lambda: session.serve(requests, SPLIT),
        "fused": lambda: session.serve(requests, FUSED),
    }
    if len(requests) == 1:
        return {"transformers": lambda: peer.read(prompts, canvases), **paths}
    return {
        "transformers one by one": lambda: [
            peer.read(prompts[n : n + 1], canvases[n : n + 1]) for n in range(len(requests))
        ],
        "transformers batch": lambda: peer.read(prompts, canvases),
        **paths,
    }


def measure(dtype: str, rounds: dict[int, int], figures: Figures) -> None:
    """Seconds of every path at each concurrency, and the machine's floor, into `figures`."""
    engine = midsize_engine(dtype)
    session = Session(engine, pages=PAGES)
    peer = HfPeer(midsize_checkpoint(), DTYPES[dtype])
    geometry = session.contract.geometry
    for count, repeats in rounds.items():
        requests = make_reads(count, geometry.vocab_size)
        choice = peer.choose_experts(*_tensors(requests))
        console.print(f"{dtype} x{count}: transformers experts {peer.experts}, seconds {choice}")
        before, flops = floor_seconds(geometry, count * (PROMPT + CANVAS), DTYPES[dtype])
        times = alternate(_paths(peer, session, requests), repeats)
        after, _ = floor_seconds(geometry, count * (PROMPT + CANVAS), DTYPES[dtype])
        floor = min(before, after)
        figures.points[dtype, count] = Reading(medians(times), floor, flops)


def check(figures: Figures) -> None:
    """One JSON line a figure: seconds, shares of the floor, ratios with what is asked of them."""
    for (dtype, count), point in figures.points.items():
        context = {"dtype": dtype, "concurrency": count}
        for path, seconds in point.seconds.items():
            emit("seconds", seconds, path=path, floor_share=point.share(path), **context)
        emit("floor_gflops", point.flops / point.floor / 1e9, **context)
        for name, value, asked in point.ratios():
            emit(name, value, asked=asked if dtype == "float32" else "none", **context)


def probe_memory(dtype: str) -> dict[str, int]:
    """Memory of a fresh engine process after a batch of 16, and at its peak."""
    command = [sys.executable, "-m", "benchmarks.memory_probe", str(midsize_engine(dtype))]
    output = subprocess.run([*command, str(PAGES)], check=True, capture_output=True, text=True)
    found: dict[str, int] = json.loads(output.stdout.splitlines()[-1])
    mib = {name: size / 2**20 for name, size in found.items()}
    emit("memory_rest_mib", mib["rest"], dtype=dtype, asked=f"<= {MOST_REST_MIB}", **mib)
    return found


def main() -> None:
    """Measure, print and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--rounds", type=int, default=15, help="rounds at concurrency 1")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    transformers_logging.disable_progress_bar()
    figures = Figures()
    for dtype in DTYPES:
        measure(dtype, {1: options.rounds, 16: max(3, options.rounds // 3)}, figures)
    check(figures)
    figures.memory = {dtype: probe_memory(dtype) for dtype in DTYPES}
    path = write_report(figures, options.report)
    console.print(f"report: {path}")


if __name__ == "__main__":
    main()
