"""What becomes of a capture that fails; that captures replay is `test_gpu.py`'s to prove."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from build_engine.errors import EngineError
from triton_backend.device.executor import Tensors
from triton_backend.device.graphs import Bound, Graphs


class Recorder:
    """Stands for torch's graph, which takes a GPU."""

    calls: list[str]

    def __init__(self) -> None:
        Recorder.calls = []

    def capture_begin(self, capture_error_mode: str) -> None:
        self.calls.append(f"begin {capture_error_mode}")

    def capture_end(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize("error", [EngineError("no kernel."), RuntimeError("not permitted")])
def test_a_capture_that_fails_leaves_the_stream_free_and_names_the_switch(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorder)
    inputs = {"hidden": torch.zeros(2)}
    runs = 0

    def plain(given: Mapping[str, Tensor]) -> Tensors:
        return dict(given)

    def bind(given: Mapping[str, Tensor]) -> Bound:
        def enqueue() -> Tensors:
            nonlocal runs
            runs += 1
            if runs > 1:
                raise error
            return dict(given)

        return enqueue

    graphs = Graphs(4)
    graphs.run("call", inputs, plain, bind)
    with pytest.raises(EngineError, match="serve with cuda_graphs off"):
        graphs.run("call", inputs, plain, bind)
    assert Recorder.calls == ["begin thread_local", "end"]
