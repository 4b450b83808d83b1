"""What Triton adds to a read: client latency beyond the engine's execution, one at a time."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import numpy as np
from tritonclient import grpc

TICKETS = Path(__file__).resolve().parents[1] / "examples" / "tickets"


def text_tensor(name: str, value: str) -> grpc.InferInput:
    """A STRING [1] input."""
    tensor = grpc.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([value.encode()], dtype=object))
    return tensor


def added_milliseconds(url: str, reads: int = 200, warmups: int = 20) -> dict[str, float]:
    """Medians in ms over gRPC at concurrency 1; `value` is latency beyond the execution."""
    questions = (TICKETS / "questions.json").readtext_tensor(encoding="utf-8")
    lines = (TICKETS / "heldout.jsonl").readtext_tensor(encoding="utf-8").splitlines()
    client = grpc.InferenceServerClient(url)
    latency, execution = [], []
    for n in range(warmups + reads):
        state = json.loads(lines[n % len(lines)])["text"]
        inputs = [text_tensor("text_input", state), text_tensor("questions", questions)]
        start = time.perf_counter()
        result = client.infer("structured_read", inputs)
        if n >= warmups:
            latency.append(1e3 * (time.perf_counter() - start))
            execution.append(float(result.as_numpy("execution_ms")[0]))
    return {
        "latency_ms": statistics.median(latency),
        "execution_ms": statistics.median(execution),
        "value": statistics.median(a - b for a, b in zip(latency, execution, strict=True)),
    }
