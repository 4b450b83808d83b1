"""What Triton adds to a read: client latency beyond the engine's execution, one at a time."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from tritonclient import grpc

from examples.clients.tensors import inputs

TICKETS = Path(__file__).resolve().parents[1] / "examples" / "tickets"


def added_milliseconds(url: str, reads: int = 200, warmups: int = 20) -> dict[str, float]:
    """Medians in ms over gRPC at concurrency 1; `value` is latency beyond the execution."""
    questions = (TICKETS / "questions.json").read_text(encoding="utf-8")
    lines = (TICKETS / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    client = grpc.InferenceServerClient(url)
    latency, execution = [], []
    for n in range(warmups + reads):
        state = json.loads(lines[n % len(lines)])["text"]
        tensors = inputs(grpc, {"text_input": state, "questions": questions})
        start = time.perf_counter()
        result = client.infer("structured_read", tensors)
        if n >= warmups:
            latency.append(1e3 * (time.perf_counter() - start))
            execution.append(float(result.as_numpy("execution_ms")[0]))
    return {
        "latency_ms": statistics.median(latency),
        "execution_ms": statistics.median(execution),
        "value": statistics.median(a - b for a, b in zip(latency, execution, strict=True)),
    }
