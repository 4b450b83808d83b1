"""Shows a reply being denoised in the terminal: `python -m examples.clients.generate --help`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from examples.clients.show import TICKETS
from examples.clients.streaming import Chunk, generate

ASK = "Write a reply and say what happens next."
console = Console()


def parser(description: str | None) -> argparse.ArgumentParser:
    """What to ask of whom."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--url", default="localhost:8001", help="host:port (default: %(default)s)")
    made.add_argument("--message", help="what the user says (default: a support ticket)")
    made.add_argument("--max-tokens", type=int, default=64)
    made.add_argument("--max-denoising-steps", type=int)
    made.add_argument("--seed", type=int, default=0)
    return made


def values_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """The inputs of a chat generation with drafts."""
    ticket = (TICKETS / "state.txt").read_text(encoding="utf-8").strip()
    message = chosen.message or f"{ticket}\n\n{ASK}"
    steps = chosen.max_denoising_steps
    return {
        "messages": json.dumps([{"role": "user", "content": message}], ensure_ascii=False),
        "max_tokens": np.int32(chosen.max_tokens),
        "seed": np.uint64(chosen.seed),
        "return_drafts": np.bool_(True),
        "max_denoising_steps": None if steps is None else np.int32(steps),
    }


def show_live(chunks: Iterable[Chunk], delay: float) -> triton.InferResult:
    """Finished text plain, the canvas in work dim, its step and mean entropy below."""
    written = ""
    with Live(console=console, refresh_per_second=30) as live:
        for chunk in chunks:
            if chunk.final is not None:
                return chunk.final
            if not chunk.draft:
                written += chunk.text
            if len(chunk.entropy):
                live.update(_frame(written, chunk))
                time.sleep(delay if chunk.draft else 0)
    raise ConnectionError("the stream ended without a final response")


def show_plain(chunks: Iterable[Chunk]) -> triton.InferResult:
    """A line a step."""
    for chunk in chunks:
        if chunk.final is not None:
            return chunk.final
        if len(chunk.entropy):
            kind = "step" if chunk.draft else "done"
            mean = float(np.mean(chunk.entropy))
            print(f"canvas {chunk.canvas} {kind} {chunk.step:2}  {mean:7.4f} nats  {chunk.text!r}")
    raise ConnectionError("the stream ended without a final response")


def _frame(written: str, chunk: Chunk) -> Group:
    text = Text(written)
    if chunk.draft:
        text.append(chunk.text, style="dim italic")
    mean = float(np.mean(chunk.entropy))
    status = f"canvas {chunk.canvas}, step {chunk.step}, mean entropy {mean:.4f} nats"
    return Group(text, Text(status, style="cyan"))


def print_summary(final: triton.InferResult) -> None:
    """What the reply took."""
    steps = final.as_numpy("denoising_steps").tolist()
    number = {
        name: final.as_numpy(name)[0]
        for name in ("num_output_tokens", "executions", "tokens_per_execution", "finish_reason")
    }
    print(
        f"{number['num_output_tokens']} tokens, finish reason "
        f"{number['finish_reason'].decode()}, denoising steps {steps}, executions "
        f"{number['executions']}, {number['tokens_per_execution']:.2f} tokens an execution"
    )


def main() -> int:
    """Streams one reply."""
    made = parser(__doc__)
    made.add_argument("--delay", type=float, default=0.05, help="seconds to show each draft")
    made.add_argument("--plain", action="store_true", help="a line a step, nothing moves")
    chosen = made.parse_args()
    chunks = generate(chosen.url, values_of(chosen))
    plain = chosen.plain or not console.is_terminal
    print_summary(show_plain(chunks) if plain else show_live(chunks, chosen.delay))
    return 0


if __name__ == "__main__":
    sys.exit(main())
