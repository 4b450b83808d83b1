"""Runs a table's cases in a worker process, within a time budget; imports no torch.

A worker that dies or hangs costs the case it was at: a new one goes on with the next.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu_cases import Case, Outcome, reason_to_drop

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 180.0
"""For importing torch, opening the device and a first launch."""

_PATIENCE = 4.0


class WorkerError(RuntimeError):
    """Nothing can run here; the message is one sentence."""


class Worker:
    """One worker process; `close` it."""

    def __init__(self, kind: str, interpreted: bool, module: str) -> None:
        # A child that is killed leaves its last words here.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("TRITON_INTERPRET", None)
        if interpreted:
            environment["TRITON_INTERPRET"] = "1"
        command = [sys.executable, "-m", module, kind]
        self._process = subprocess.Popen(
            command + ["interpreted"] * interpreted,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        stream = self._process.stdout
        self._listener = threading.Thread(target=self._listen, args=(stream,), daemon=True)
        self._listener.start()

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            self._answers.put(line)
        self._answers.put("")

    def ask(self, name: str) -> None:
        """Sends a case's name; a worker that is gone is noticed by `answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        except OSError:
            return

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next answer, or {"gone": why}."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            return {"gone": f"no answer in {seconds:.0f} s"}
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        return {"gone": f"the worker ended with code {code}: {self.last_words()}"}

    def last_words(self) -> str:
        """The last line of its error stream."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._listener.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                # A pipe to a dead process may still hold a line.
                try:
                    stream.close()
                except OSError:
                    continue


@dataclass
class Run:
    """A whole run: what the worker said of the machine, and every case's outcome in order."""

    device: str = ""
    software: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is asked of a run: the table's kind, its cases, seconds, the interpreter or a GPU.

    A case has `patience` seconds before its worker counts as hanging, or some times its own.
    """

    kind: str
    cases: Sequence[Case]
    budget: float
    interpreted: bool
    patience: float = 90.0
    module: str = "benchmarks.gpu_worker"


def run_cases(plan: Plan, report: Callable[[int, Outcome], None]) -> Run:
    """Every case in order; `report` is called with a case's number and outcome.

    Raises:
        WorkerError: there is no device, or a first kernel does not start on it.
    """
    started, hands = time.monotonic(), _Hands(plan)
    hands.start()
    try:
        for number, case in enumerate(plan.cases):
            outcome = hands.run(case, plan.budget - (time.monotonic() - started))
            hands.result.outcomes.append(outcome)
            report(number, outcome)
    finally:
        hands.stop()
    hands.result.seconds = time.monotonic() - started
    return hands.result


class _Hands:
    """The worker of the moment, and what it said of the machine."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.result = plan, Run()
        self._worker: Worker | None = None
        self._free, self._fault = 0.0, ""

    def start(self) -> None:
        """A new worker, greeted; a WorkerError if nothing can run on it."""
        self._worker = Worker(self.plan.kind, self.plan.interpreted, self.plan.module)
        hello = self._worker.answer(START_SECONDS)
        why = hello.get("error") or hello.get("gone")
        if why:
            self.stop()
            raise WorkerError(str(why))
        self.result.device, self.result.software = hello["device"], hello["software"]
        self._free = float(hello["free_gib"])

    def stop(self) -> None:
        """Ends the worker, if there is one."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def run(self, case: Case, left: float) -> Outcome:
        """One case with what is left of the budget; a worker lost by it is replaced."""
        why = _why_not(self.plan, case, left, self._free)
        if why:
            return Outcome(case.name, *why)
        if self._worker is None:
            return Outcome(case.name, "crashed", self._fault)
        self._worker.ask(case.name)
        answer = self._worker.answer(_patience(self.plan, case))
        gone = answer.get("gone")
        if gone or answer["lost"]:
            self.stop()
            try:
                self.start()
            except WorkerError as error:
                self._fault = f"no worker starts any more: {error}"
        else:
            self._free = float(answer["free_gib"])
        return Outcome(case.name, "crashed", gone) if gone else Outcome.from_json(answer["outcome"])


def _why_not(plan: Plan, case: Case, left: float, free: float) -> tuple[str, str] | None:
    """(status, reason) of a case that is not run, or None."""
    if plan.interpreted:
        return ("skipped", "needs a GPU") if case.needs_gpu else None
    reason = reason_to_drop(case, left, free)
    return ("dropped", reason) if reason else None


def _patience(plan: Plan, case: Case) -> float:
    return max(plan.patience, 0 if plan.interpreted else _PATIENCE * case.seconds)
