"""What the example clients share: their options, and how they print a read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

OUTPUTS = ("answers", "executions", "fusion")
TICKETS = Path(__file__).resolve().parents[1] / "tickets"


def parser(description: str, url: str) -> argparse.ArgumentParser:
    """The options of a client whose server is at `url` unless told otherwise."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--url", default=url, help="host:port of the server (default: %(default)s)")
    made.add_argument("--state", help="the text to read (default: a support ticket)")
    made.add_argument(
        "--questions",
        type=Path,
        default=TICKETS / "questions.json",
        help="JSON file of questions (default: %(default)s)",
    )
    made.add_argument("--seed", type=int, help="of the noise in the answer slots")
    return made


def state_of(options: argparse.Namespace) -> str:
    """The text given, or the demo ticket."""
    if options.state is not None:
        return str(options.state)
    return (TICKETS / "state.txt").read_text(encoding="utf-8").strip()


def values_of(options: argparse.Namespace) -> dict[str, Any]:
    """The inputs of a read at question level."""
    seed = None if options.seed is None else np.uint64(options.seed)
    questions = options.questions.read_text(encoding="utf-8")
    return {"text_input": state_of(options), "questions": questions, "seed": seed}


def print_result(result: Any) -> None:
    """One line a question, then how many engine executions the read took."""
    found = {name: result.as_numpy(name).reshape(-1)[0] for name in OUTPUTS}
    for name, answer in json.loads(found["answers"]).items():
        print(f"  {name:<12} {_answer(answer)}")
    print(f"executions: {found['executions']} ({found['fusion'].decode()})")


def _answer(answer: Mapping[str, Any]) -> str:
    if answer["type"] == "noul":
        return f"yes {answer['noul']:.3f}"
    listed = ", ".join(f"{name} {p:.3f}" for name, p in answer["probabilities"].items())
    if answer["type"] == "choice":
        return f"{answer['choice']}  ({listed})"
    level = max(answer["probabilities"], key=answer["probabilities"].get)
    return f"{answer['score']:.2f}, most likely {json.dumps(answer['legend'][level])}  ({listed})"
