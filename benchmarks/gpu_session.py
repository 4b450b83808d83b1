"""The server's scheduler and device runner over an executor, in this process."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from benchmarks.session import HiddenTap, Session
from build_engine.contract import EngineContract
from triton_backend.runner import Runner


class DeviceTap(HiddenTap):
    """Keeps the last hidden rows, whose logits are worked out in fp32 on the host."""

    def logits(self, rows: slice) -> Tensor:
        """Soft-capped fp32 logits [rows, V] of the last execution's output rows."""
        runner: Any = self.runner
        cap = self.contract.geometry.softcap
        hidden, embedding = self.last[rows].float().cpu(), runner.embedding.float().cpu()
        capped: Tensor = cap * ((hidden @ embedding.t()) / cap).tanh()
        return capped


class DeviceSession(Session):
    """A session over a runner that is open already."""

    def __init__(self, contract: EngineContract, runner: Runner, pages: int = 512) -> None:
        self.contract = contract
        self.tap = DeviceTap(runner)  # type: ignore[arg-type]
        self.tap.create_pools(pages, pages)
        self.pages = pages
        self.logits = {}
        self.states = {}
