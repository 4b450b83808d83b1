"""Worst difference between the ONNX graphs in onnxruntime and transformers, per path.

Both forms: with the ops' functions, and rewritten in standard ops for TensorRT-RTX.

Run: python -m benchmarks.onnx_parity
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.utils import logging as transformers_logging

from benchmarks import parity, parity_generation
from benchmarks.onnx_runner import OnnxSession, PlainSession
from benchmarks.session import Session
from benchmarks.timing import emit
from build_engine.build import BuildConfig, build_engine
from tests.checkpoints import make_checkpoint
from triton_backend.core import Request

FORMS: dict[str, type[Session]] = {"functions": OnnxSession, "plain": PlainSession}
BOUND = parity.BOUNDS["float32"]


def reads(session: Session, checkpoint: Path) -> dict[str, float]:
    """Largest difference of logits per path over prompts at every boundary, alone and together."""
    requests = parity.make_requests(session)
    truth = parity.oracle(checkpoint, "float32", requests)
    worst = {}
    for name, policy in parity.PATHS.items():
        for group, batches in (
            ("alone", [[request] for request in requests.values()]),
            ("batched", [list(requests.values())]),
        ):
            for batch in batches:
                session.serve(batch, policy, keep_logits=True)
            worst[f"{name}, {group}"] = max(
                float((session.logits[key] - truth[key]).abs().max()) for key in truth
            )
    return worst


def steady(requests: list[Request]) -> list[Request]:
    """Those at temperatures of use.

    Near 0 a step's rounding errors grow a hundredfold in the next, and two exact implementations
    part after some steps; the ops' tests cover such temperatures.
    """
    made = [request.generation for request in requests]
    return [
        request
        for request, asked in zip(requests, made, strict=True)
        if asked is not None and asked.denoising.t_min >= 0.4
    ]


def generations(session: Session, checkpoint: Path) -> dict[str, parity_generation.Found]:
    """Every denoising step of generations that cross every boundary, commits included."""
    requests = steady(parity_generation.boundary_generations(session, demo=False))
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(checkpoint, dtype=torch.float32).eval()
    truth = parity_generation.oracle(model, requests)
    return {
        f"{name}, {group}": parity_generation.compare(session, requests, truth, policy, together)
        for name, policy in track(parity.PATHS.items(), "generate", transient=True)
        for group, together in (("alone", False), ("batched", True))
    }


def compare(form: str, checkpoint: Path, engine: Path, table: Table) -> bool:
    """Compare and report; whether every path is within the bound."""
    session, good = FORMS[form](engine, pages=256), True
    for path, difference in reads(session, checkpoint).items():
        emit("onnx parity", difference, graph=form, path=path, bound=BOUND)
        table.add_row(form, path, "max |difference| of logits", f"{difference:.2e}", f"{BOUND}")
        good &= difference <= BOUND
    for path, found in generations(session, checkpoint).items():
        emit("onnx generation parity", len(found.parted), graph=form, path=path, **vars(found))
        measure = f"steps that differ of {found.steps}"
        table.add_row(form, path, measure, f"{len(found.parted)} ({found.ties} ties)", "0")
        good &= not found.parted
    return good


def main() -> int:
    """Exit code 1 when a path is beyond its bound."""
    logging.disable(logging.WARNING)
    transformers_logging.disable_progress_bar()
    table = Table("graph", "path", "measure", "found", "bound", title="parity of ONNX, fp32")
    good = True
    with tempfile.TemporaryDirectory(prefix="onnx-parity-") as name:
        directory = Path(name)
        checkpoint = make_checkpoint(directory / "random")
        engine = directory / "engine"
        build = BuildConfig(checkpoint, engine, target="onnx", page_size=8)
        build_engine(build, lambda _: None)
        for form in FORMS:
            good &= compare(form, checkpoint, engine, table)
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
