"""Compiles every kernel for every target, with a report: `python -m plugins.gpu.check`."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

from plugins.gpu.artifact import Usage, assemble, compile_kernel, usage
from plugins.gpu.device import ELEMENT_BYTES, TARGETS, Gpu
from plugins.gpu.variants import variants

STACK_LIMIT = 64
"""Bytes of spilled registers a thread may have: a few outside the inner loops cost nothing."""


@dataclass(frozen=True)
class Row:
    """One kernel for one element type and target."""

    kernel: str
    dtype: str
    capability: int
    threads: int
    usage: Usage

    @property
    def fault(self) -> str:
        """Why it may not be used as it is, or nothing."""
        if self.usage.shared_bytes > Gpu(self.capability).shared_bytes:
            return "too much shared memory"
        return "spills" if self.usage.stack_bytes > STACK_LIMIT else ""


def measure(dtype: str, capability: int, names: Sequence[str] = ()) -> list[Row]:
    """Compiles the variants of these names, or all, and assembles their stripped PTX once more."""
    gpu, rows = Gpu(capability), []
    for variant in variants(dtype, gpu):
        if names and variant.name not in names:
            continue
        artifact = compile_kernel(variant.kernel, variant.signature, variant.plan, gpu)
        assemble(artifact)
        row = Row(variant.name, dtype, capability, artifact.threads, usage(artifact))
        rows.append(row)
    return rows


def measure_all(
    dtypes: Iterable[str], capabilities: Iterable[int], names: Sequence[str] = ()
) -> Iterator[Row]:
    """All combinations, on every core of this machine."""
    # A fresh process: one that has torch's threads must not be forked.
    context = multiprocessing.get_context("spawn")
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        tasks = [pool.submit(measure, *pair, names) for pair in product(dtypes, capabilities)]
        for task in tasks:
            yield from task.result()


def main(arguments: Sequence[str]) -> int:
    """Prints a row per kernel, then the worst of each target; 1 if any is not within bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=[*ELEMENT_BYTES], nargs="*", default=[*ELEMENT_BYTES])
    parser.add_argument("--capability", type=int, nargs="*", default=[*TARGETS])
    given = parser.parse_args(arguments)
    started, rows = time.monotonic(), []
    heading = ("kernel", "dtype", "SM", "threads", "registers", "spilled B", "shared KiB", "")
    _write(heading)
    for row in measure_all(given.dtype, given.capability):
        rows.append(row)
        used = row.usage
        sizes = (used.registers, used.stack_bytes, f"{used.shared_bytes / 1024:.1f}")
        _write((row.kernel, row.dtype, row.capability, row.threads, *sizes, row.fault))
    for capability in given.capability:
        _write_worst(capability, [row for row in rows if row.capability == capability])
    faults = sum(bool(row.fault) for row in rows)
    elapsed = time.monotonic() - started
    sys.stdout.write(f"{len(rows)} kernels, {faults} out of bounds, {elapsed:.0f} s\n")
    return 1 if faults else 0


def _write_worst(capability: int, rows: list[Row]) -> None:
    shared = max(rows, key=lambda row: row.usage.shared_bytes)
    spilled = max(rows, key=lambda row: row.usage.stack_bytes)
    limit = Gpu(capability).shared_bytes // 1024
    sys.stdout.write(
        f"worst on SM {capability}: {shared.usage.shared_bytes / 1024:.1f} of {limit} KiB shared "
        f"in {shared.kernel} {shared.dtype}, {spilled.usage.stack_bytes} B spilled in "
        f"{spilled.kernel} {spilled.dtype}\n"
    )


def _write(cells: Sequence[object]) -> None:
    widths = (18, 9, 4, 8, 10, 10, 11, 0)
    line = "".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
