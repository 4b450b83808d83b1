"""CUDA graphs of recurring calls: the first runs plain, the second captures, the rest replay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

from build_engine import bindings
from build_engine.errors import EngineError
from triton_backend.device.checks import first_line
from triton_backend.device.executor import Tensors
from triton_backend.device.gpu import settle
from triton_backend.device.recurring import Recurring

Plain = Callable[[Mapping[str, Tensor]], Tensors]
"""Enqueues a function on these inputs, on the current stream."""

Bound = Callable[[], Tensors]
"""Enqueues a function that is bound to its inputs and outputs already."""


def call_key(function: str, inputs: Mapping[str, Tensor]) -> Hashable:
    """What a captured call depends on: every shape, and the pools' addresses."""
    shapes = tuple((name, tuple(values.shape)) for name, values in inputs.items())
    pools = tuple(v.data_ptr() for name, v in inputs.items() if bindings.is_pool(name))
    return function, shapes, pools


def _capture(graph: torch.cuda.CUDAGraph, enqueue: Bound) -> None:
    """Records one call; whatever happens, the stream takes work again afterwards."""
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        enqueue()
    finally:
        graph.capture_end()


class _Replay:
    """One captured call over inputs of its own; pools are bound where they lie."""

    def __init__(
        self, bind: Callable[[Mapping[str, Tensor]], Bound], inputs: Mapping[str, Tensor]
    ) -> None:
        self._inputs = {
            name: values if bindings.is_pool(name) else values.clone()
            for name, values in inputs.items()
        }
        enqueue = bind(self._inputs)
        # A library settles what it puts off in a first run, which a capture must not contain; this
        # one's results are those of the call that led here.
        self.outputs = enqueue()
        settle(next(iter(self._inputs.values())).device)
        self._graph = torch.cuda.CUDAGraph()
        try:
            _capture(self._graph, enqueue)
        except (RuntimeError, EngineError) as error:
            raise EngineError(
                f"the GPU's work does not go into a CUDA graph ({first_line(error)}); serve with "
                "cuda_graphs off."
            ) from error

    def run(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """The call on new inputs of the same shapes."""
        for name, values in self._inputs.items():
            if values is not inputs[name]:
                values.copy_(inputs[name], non_blocking=True)
        self._graph.replay()
        return self.outputs


class Graphs:
    """Captured calls of one executor, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._replays: Recurring[_Replay] = Recurring(most)

    def run(
        self,
        key: Hashable,
        inputs: Mapping[str, Tensor],
        plain: Plain,
        bind: Callable[[Mapping[str, Tensor]], Bound],
    ) -> Tensors:
        """The outputs of a call; `bind` readies one whose state no other call will change."""
        replay = self._replays.find(key)
        if replay is not None:
            return replay.run(inputs)
        if not self._replays.recurs(key):
            return plain(inputs)
        replay = _Replay(bind, inputs)
        self._replays.keep(key, replay)
        return replay.outputs
