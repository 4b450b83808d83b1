"""The process that owns the device: runs cases by name, answers with what they found.

A case that fails answers with its error. Where the device itself is lost, which no process
recovers from, the answer says so and the process ends: its parent starts another.
Run by benchmarks.gpu_parent: a line with a case's name in, a line of JSON out.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import sys
import time
import traceback
from typing import Any, TextIO

import numpy as np
import torch
import triton

from benchmarks.gpu_cases import Case, NotHereError, Outcome
from benchmarks.gpu_clock import first_line
from benchmarks.gpu_context import Context
from benchmarks.gpu_ops import register_ops, try_launch
from benchmarks.gpu_tables import TABLES

INTERPRETER = "cpu interpreter"


def greeting(context: Context) -> dict[str, Any]:
    """Card and software in words, or why nothing can run here."""
    if not context.interpreted and not torch.cuda.is_available():
        return {
            "error": f"torch {torch.__version__} finds no NVIDIA GPU on this machine; run this "
            "where there is one, with torch's CUDA build, or pass --dry-run to try it on a CPU."
        }
    try:
        register_ops(context.interpreted)
        try_launch(context.device)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {
            "error": f"a first kernel does not start here ({first_line(error)}); triton needs a C "
            "compiler, gcc or clang, Python's headers and a GPU driver as new as torch's CUDA."
        }
    return {
        "device": INTERPRETER if context.interpreted else card(context.device),
        "software": software(),
        "free_gib": context.free_gib(),
    }


def card(device: torch.device) -> str:
    """The GPU's name."""
    return str(torch.cuda.get_device_properties(device).name)


def software() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
        "numpy": np.__version__,
    }


def run(case: Case, context: Context) -> Outcome:
    """What a case finds, up to its failure if it fails."""
    outcome, start = Outcome(case.name), time.monotonic()
    try:
        module, _, name = case.function.partition(":")
        for found in getattr(importlib.import_module(module), name)(context, **case.arguments):
            outcome.add(found)
    except NotHereError as error:
        outcome.status, outcome.reason = "skipped", str(error)
    except Exception as error:  # noqa: BLE001 - recorded, and the other cases go on
        traceback.print_exc()
        outcome.status, outcome.reason = "failed", first_line(error)
    outcome.seconds = time.monotonic() - start
    return outcome


def settle(context: Context) -> bool:
    """Frees what a case has left; whether the device still answers."""
    gc.collect()
    if context.interpreted:
        return True
    try:
        torch.cuda.synchronize(context.device)
        torch.cuda.empty_cache()
    except RuntimeError:
        traceback.print_exc()
        return False
    return True


def serve(kind: str, context: Context, names: TextIO, answers: TextIO) -> None:
    """Greets, then answers case by case until there are no more names or no device."""

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    hello = greeting(context)
    say(hello)
    cases = {case.name: case for case in TABLES[kind]}
    for line in [] if "error" in hello else names:
        outcome = run(cases[line.rstrip("\n")], context)
        alive = settle(context)
        free = context.free_gib() if alive else 0.0
        say({"outcome": outcome.to_json(), "free_gib": free, "lost": not alive})
        if not alive:
            return


def main() -> None:
    """What libraries and kernels print goes to the error stream, so that answers stay alone."""
    kind, interpreted = sys.argv[1], sys.argv[2:] == ["interpreted"]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if interpreted:
        # Masked lanes divide by zero, as they may on a GPU.
        np.seterr(all="ignore")
    serve(kind, Context(interpreted), sys.stdin, answers)


if __name__ == "__main__":
    main()
