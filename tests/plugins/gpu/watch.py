"""Refuses what a kernel reads or writes outside its tensors, in the interpreter's process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

MOST_ACCESSES = 50_000
"""Of one launch; more than any of these small calls needs, so a loop does not end."""


class Watch:
    """Knows where the tensors of the launch at hand lie."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._accesses = 0

    def begin(self, arguments: Sequence[Any]) -> None:
        self._accesses, self._spans = (
            0,
            [
                (one.data_ptr(), one.data_ptr() + one.numel() * one.element_size())
                for one in _tensors(arguments)
            ],
        )

    def check(self, pointers: Any, mask: Any) -> None:
        """Raises IndexError unless every address that is not masked lies in one of the tensors."""
        size = pointers.get_element_ty().primitive_bitwidth // 8
        alive = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        first = pointers.data[alive].astype(np.uint64)
        inside = np.zeros(first.shape, bool)
        for low, high in self._spans:
            inside |= (first >= low) & (first < high) & (first + np.uint64(size) <= high)
        if not inside.all():
            raise IndexError(f"{(~inside).sum()} of {inside.size} addresses are out of bounds")
        self._accesses += 1
        if self._accesses > MOST_ACCESSES:
            raise IndexError(f"more than {MOST_ACCESSES} accesses: a loop does not end")


def _tensors(arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
    for one in arguments:
        if isinstance(one, tuple):
            yield from _tensors(one)
        elif isinstance(one, torch.Tensor):
            yield one


@contextmanager
def watched() -> Iterator[None]:
    """Within it, a launch ends with an InterpreterError before it leaves its tensors."""
    watch = Watch()
    arguments_of = GridExecutor._init_args_hst
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def begin(executor: Any, *given: Any) -> Any:
        found = arguments_of(executor, *given)
        watch.begin(found[0])
        return found

    def checked_load(builder: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        watch.check(pointers, mask)
        return load(builder, pointers, mask, *rest)

    def checked_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.check(pointers, mask)
        return store(builder, pointers, value, mask, *rest)

    with (
        patch.object(GridExecutor, "_init_args_hst", begin),
        patch.object(InterpreterBuilder, "create_masked_load", checked_load),
        patch.object(InterpreterBuilder, "create_masked_store", checked_store),
    ):
        yield
