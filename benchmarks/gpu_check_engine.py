"""The compiled `cuda` engine against transformers, as the eager model is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from benchmarks.gpu_cases import Finding, NotHereError
from benchmarks.gpu_check_model import (
    CONTEXT,
    LENGTHS,
    LIMITS,
    PAGE,
    compare_generations,
    compare_reads,
    small_checkpoint,
)
from benchmarks.gpu_context import Context
from benchmarks.gpu_session import DeviceSession
from build_engine.build import BuildConfig, build_engine
from triton_backend.runner import RunnerOptions
from triton_backend.runners import open_runner


def engine(context: Context, dtype: str, generations: bool) -> Iterator[Finding]:
    """Builds, loads and runs an engine of a small checkpoint; reads, and in fp32 generations.

    Raises:
        NotHereError: there is no C++ compiler, which compiling an engine takes.
    """
    assert not context.interpreted
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        raise NotHereError("compiling a cuda engine takes a C++ compiler: install g++")
    with small_checkpoint() as checkpoint:
        output = checkpoint.parent / "engine"
        build = BuildConfig(
            checkpoint,
            output,
            target="cuda",
            dtype=dtype,
            page_size=PAGE,
            max_context=CONTEXT,
            max_step_tokens=LIMITS.max_step_tokens,
            max_segments=LIMITS.max_segments,
        )
        contract = build_engine(build, lambda _: None)
        session = DeviceSession(contract, open_runner(output, contract, RunnerOptions()))
        yield from compare_reads(session, checkpoint, dtype, LENGTHS, paths=2)
        if generations:
            yield from compare_generations(session, checkpoint, (1, 16, 33), paths=1)
