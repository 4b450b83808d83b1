"""Runs programs that hold kernel launches: the graph here, each launch in the interpreter."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch.export import ExportedProgram
from triton.runtime.autotuner import Autotuner

from plugins.gpu.lowering import Lowering
from plugins.gpu.tiers import Build
from tests.plugins.gpu.compile_target import absent_gpu
from tests.plugins.gpu.interpreter import Interpreter

LAUNCH = "tests.plugins.gpu.remote_launch.launch"


def export(model: torch.nn.Module, build: Build, inputs: tuple, shapes: Any) -> ExportedProgram:
    """The program of a model with its ops as launches, and every mutation made explicit."""
    with torch.no_grad(), absent_gpu(build.gpu.capability), Lowering(build):
        program = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    return functional(program, build)


def functional(program: ExportedProgram, build: Build) -> ExportedProgram:
    """As Inductor takes it: in place no more, which is worked out from what the kernels write."""
    with absent_gpu(build.gpu.capability):
        return program.run_decompositions({})


def launches(program: ExportedProgram) -> list[torch.fx.Node]:
    kind = torch.ops.higher_order.triton_kernel_wrapper_functional
    return [node for node in program.graph.nodes if node.target is kind]


def kernel_of(node: torch.fx.Node) -> str:
    """The kernel that a launch is of."""
    return _name(_entry(kernel_side_table.get_kernel(node.kwargs["kernel_idx"])))


def _entry(kernel: Any) -> Any:
    """The entry itself of one that torch has given its number of warps."""
    return kernel.fn if isinstance(kernel, Autotuner) else kernel


def _name(entry: Any) -> str:
    return entry.__name__.removesuffix("_flat")


class _Remote:
    """Stands in the table of kernels for one of them, and has the interpreter run it."""

    def __init__(self, interpreter: Interpreter, kernel: Any) -> None:
        self.arg_names = kernel.arg_names
        entry = _entry(kernel)
        inner = entry.fn.__globals__[_name(entry)]
        lengths = [sum(_is_part(one, name) for one in self.arg_names) for name in inner.arg_names]
        self._origin = inner.fn.__module__, inner.fn.__name__, tuple(lengths[:-1])
        self._interpreter = interpreter

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            *tensors, text = arguments
            if 0 in grid:
                return
            sent = (*self._origin, grid, text, tensors)
            _, left = self._interpreter.call(LAUNCH, *sent)
            for ours, theirs in zip(tensors, left[-1], strict=True):
                if isinstance(ours, torch.Tensor):
                    ours.copy_(theirs)

        return launch


def _is_part(argument: str, name: str) -> bool:
    return argument.startswith(f"{name}_") and argument.removeprefix(f"{name}_").isdigit()


@contextmanager
def interpreted(interpreter: Interpreter) -> Iterator[None]:
    """Within it, programs that were traced before it run on the CPU."""
    kept = dict(kernel_side_table.id_to_kernel)
    table = kernel_side_table.id_to_kernel
    table.update({key: _Remote(interpreter, kernel) for key, kernel in kept.items()})
    try:
        yield
    finally:
        table.update(kept)
