"""Held-out accuracy and calibration of the demo checkpoint through a running server.

Run: python -m benchmarks.accuracy --engine engines/tickets-cpu-float32
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from tritonclient import grpc

from benchmarks.timing import emit
from examples.clients.tensors import inputs
from examples.tickets.evaluate import Decision, summary
from examples.tickets.generator import Ticket
from examples.tickets.heldout import demo_questions, demo_questions_json, heldout
from examples.tickets.tasks import right_label
from triton_backend.launch_error import LaunchError
from triton_backend.server import Server, ServerConfig

AT_ONCE = 16
ASKED = {"department": 0.95, "again": 0.90}


def read(client: grpc.InferenceServerClient, ticket: Ticket, seed: int) -> list[Decision]:
    """The demo questions about one ticket, in one read."""
    asked = {
        "text_input": ticket.text, "questions": demo_questions_json(), "seed": np.uint64(seed)
    }  # fmt: skip
    probs = client.infer("structured_read", inputs(grpc, asked)).as_numpy("slot_probs")
    questions = demo_questions()
    return [
        Decision(
            question.id,
            ticket.language,
            tuple(row[: len(question.labels)].tolist()),
            right_label(question, ticket),
        )
        for question, row in zip(questions, probs, strict=True)
    ]


def decide(url: str, tickets: Sequence[Ticket]) -> list[Decision]:
    """Reads all tickets, several in flight."""
    client = grpc.InferenceServerClient(url)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        jobs = [threads.submit(read, client, ticket, n) for n, ticket in enumerate(tickets)]
        return [d for job in track(jobs, "reading tickets", transient=True) for d in job.result()]


def main() -> int:
    """Exit code 1 when a question is below what is asked of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--tritonserver", type=Path)
    parser.add_argument("--limit", type=int, help="read only the first tickets")
    options = parser.parse_args()
    tickets = heldout()[: options.limit]
    try:
        with Server(ServerConfig(options.engine, tritonserver=options.tritonserver)) as server:
            figures = summary(decide(server.grpc_url, tickets))
    except LaunchError as error:
        Console(stderr=True).print(f"error: {error}")
        return 1
    for question, found in figures.items():
        emit("accuracy", found["accuracy"], question=question, tickets=len(tickets), **found)
    return int(any(figures[name]["accuracy"] < least for name, least in ASKED.items()))


if __name__ == "__main__":
    sys.exit(main())
