"""Runs the GPU kernels on a CPU in a process of their own, under Triton's interpreter.

Triton decides when it is imported whether kernels are interpreted, so the process that runs the
tests, which compiles kernels too, cannot. Started as a program, this is the other end.
"""

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Interpreter:
    """Use as a context manager; one call at a time."""

    def __enter__(self) -> "Interpreter":
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        command = [sys.executable, "-m", __spec__.name]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def call(self, name: str, *arguments: Any) -> tuple[Any, tuple]:
        """What the function "module.name" returns, and its arguments as it left them."""
        pickle.dump((name, arguments), self._process.stdin)
        self._process.stdin.flush()
        outcome = pickle.load(self._process.stdout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def run(self, name: str, *arguments: Any) -> Any:
        return self.call(name, *arguments)[0]


def serve() -> None:
    """Answers calls until the other end hangs up; what a kernel prints goes to the error stream."""
    import numpy as np

    # Masked lanes divide by zero, as they may on a GPU.
    np.seterr(all="ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        module, _, function = name.rpartition(".")
        try:
            outcome = getattr(importlib.import_module(module), function)(*arguments), arguments
        except Exception as error:  # noqa: BLE001 - raised again at the other end
            outcome = error
        pickle.dump(outcome, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
