"""The model over the GPU's kernels against transformers, on a small random checkpoint.

transformers computes its truth in fp32 on the CPU. In fp32 the largest difference of logits is
bounded: three TF32 products and other orders of sums leave a few 1e-6 of each product, through six
layers. In bf16 single logits differ by much more in both, where a router's near-tie rounds the
other way, so our mean error is compared with transformers' own in bf16.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks.gpu_cases import Finding
from benchmarks.gpu_context import Context
from benchmarks.gpu_executor import DTYPES, EagerExecutor, checkpoint_weights, contract_of
from benchmarks.gpu_session import DeviceSession
from benchmarks.parity_generation import compare, make_generations, oracle
from benchmarks.session import Policy, read_request
from build_engine.config import load_config
from build_engine.contract import Limits
from tests.checkpoints import make_checkpoint
from tests.oracle import read_logits
from triton_backend.core import Request
from triton_backend.device.runner import DeviceRunner

PAGE, CONTEXT = 8, 128
LIMITS = Limits(
    max_step_tokens=1024,
    max_segments=64,
    max_context=CONTEXT,
    max_canvas=16,
    max_output_rows=1024,
    max_labels=16,
)
LENGTHS = (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 112)
"""Of prompts, around pages of 8, windows of 16 and the end of a context of 128."""

POLICIES = {
    "fused": Policy(),
    "split": Policy(fusion=False),
    "chunked": Policy(max_step_tokens=37),
}
LOGITS_FP32 = 1e-3
RATIO_BF16 = 1.5

Logits = dict[int, Tensor]


@contextmanager
def small_checkpoint(layers: int = 6) -> Iterator[Path]:
    """A checkpoint that is gone afterwards; transformers says nothing meanwhile."""
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
            yield make_checkpoint(Path(name) / "tiny", num_hidden_layers=layers)
    finally:
        logging.disable(logging.NOTSET)


def requests(lengths: Iterable[int], vocabulary: int) -> dict[int, Request]:
    """A read of a whole canvas for each prompt length, of random tokens."""
    drawn = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [drawn.randrange(vocabulary) for _ in range(count)]

    width = LIMITS.max_canvas
    return {n: read_request(n, tokens(length), tokens(width)) for n, length in enumerate(lengths)}


def truth(checkpoint: Path, dtype: str, asked: dict[int, Request]) -> Logits:
    """transformers' logits of every request, on the CPU."""
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(checkpoint, dtype=DTYPES[dtype]).eval()
    return {
        key: read_logits(model, list(r.prompt_ids), list(r.canvases[0].ids)).float()
        for key, r in asked.items()
    }


def eager_session(context: Context, checkpoint: Path, dtype: str) -> DeviceSession:
    """The model's own modules on the device, behind the server's scheduler and runner."""
    config = load_config(checkpoint)
    weights = checkpoint_weights(checkpoint, config, dtype, context.device)
    contract = contract_of(config, dtype, PAGE, LIMITS)
    runner = DeviceRunner(contract, EagerExecutor(config, weights))
    return DeviceSession(contract, runner)


def mean_error(found: Logits, expected: Logits) -> float:
    """The mean |difference| over all logits of all requests."""
    return float(torch.cat([(found[k] - expected[k]).abs().flatten() for k in expected]).mean())


def compare_reads(
    session: DeviceSession, checkpoint: Path, dtype: str, lengths: Sequence[int], paths: int
) -> Iterator[Finding]:
    """Reads of all prompt lengths by the first `paths` policies, alone and together."""
    asked = requests(lengths, session.contract.geometry.vocab_size)
    expected = truth(checkpoint, "float32", asked)
    peer = 0.0
    if dtype != "float32":
        peer = mean_error(truth(checkpoint, dtype, asked), expected)
    for name, policy in list(POLICIES.items())[:paths]:
        batches = {"together": [list(asked.values())], "alone": [[r] for r in asked.values()]}
        for group, parts in list(batches.items())[: 2 if paths > 1 else 1]:
            session.logits = {}
            for part in parts:
                session.serve(part, policy, keep_logits=True)
            if peer:
                ratio = mean_error(session.logits, expected) / peer
                what = f"{name}, {group}, {dtype}: mean error / transformers' own"
                yield Finding(what, ratio, RATIO_BF16)
            else:
                most = max(float((session.logits[k] - expected[k]).abs().max()) for k in expected)
                yield Finding(f"{name}, {group}, {dtype}: largest difference", most, LOGITS_FP32)


def compare_generations(
    session: DeviceSession, checkpoint: Path, lengths: Sequence[int], paths: int
) -> Iterator[Finding]:
    """Generations step by step with the same draws; near-ties may fall either way."""
    asked = make_generations(session, lengths)
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(checkpoint, dtype=torch.float32).eval()
    expected = oracle(model, asked)
    for name, policy in list(POLICIES.items())[:paths]:
        found = compare(session, asked, expected, policy, together=True)
        what = f"{name}: generations that part, of {found.requests} with {found.steps} steps"
        yield Finding(what, float(len(found.parted)), 0.0)


def _layers(context: Context) -> int:
    return 2 if context.interpreted else 6


def reads(context: Context, dtype: str) -> Iterator[Finding]:
    """Reads of the eager model."""
    lengths, paths = ((9, 17), 1) if context.interpreted else (LENGTHS, len(POLICIES))
    with small_checkpoint(_layers(context)) as checkpoint:
        session = eager_session(context, checkpoint, dtype)
        yield from compare_reads(session, checkpoint, dtype, lengths, paths)


def generation(context: Context) -> Iterator[Finding]:
    """Generation of the eager model in fp32."""
    lengths, paths = ((9,), 1) if context.interpreted else ((1, 8, 15, 16, 17, 33, 47), 2)
    with small_checkpoint(_layers(context)) as checkpoint:
        session = eager_session(context, checkpoint, "float32")
        yield from compare_generations(session, checkpoint, lengths, paths)
