"""Lets Inductor generate code for a GPU that is not here, as far as that goes without one.

What it asks torch of the GPU is answered; tensors there are fake. It stops where it would run the
kernels for the first time, with all of them and the wrapper's calls generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import graph
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode
from torch.utils import _triton
from torch.utils._pytree import tree_map, tree_map_only

from plugins.gpu.device import Gpu
from tests.plugins.gpu.compile_target import absent_gpu


@dataclass(frozen=True)
class Generated:
    """What Inductor made of a program: C++ that calls kernels, and their definitions in Python."""

    wrapper: str
    kernels: str


class _Done(BaseException):
    """Raised where a GPU is needed."""


@contextmanager
def absent_cuda(gpu: Gpu) -> Iterator[None]:
    """Within it, torch takes itself for a build with CUDA and sees one GPU."""
    major, minor = divmod(gpu.capability, 10)
    seen = SimpleNamespace(
        **{"major": major, "minor": minor, "multi_processor_count": gpu.processors},
        **{"name": "absent", "total_memory": 80 << 30, "warp_size": 32, "L2_cache_size": 50 << 20},
        **{"max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024},
        **{"regs_per_multiprocessor": 65536, "shared_memory_per_block": 48 << 10},
        **{"shared_memory_per_block_optin": gpu.shared_bytes},
    )
    answers: dict[str, Any] = {
        **{"is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None},
        **{"get_device_capability": (major, minor), "get_device_properties": seen},
        **{"get_rng_state": torch.zeros(16, dtype=torch.uint8), "set_rng_state": None},
        **{"_exchange_device": 0, "_maybe_exchange_device": 0, "set_device": None},
        **{"synchronize": None, "is_bf16_supported": True, "get_device_name": "absent"},
    }
    with ExitStack() as stack:

        def patch(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        for name, answer in answers.items():
            function = mock.Mock(return_value=answer)
            patch(torch.cuda, name, function)
            if name in ("current_device", "device_count", "get_device_properties"):
                patch(CudaInterface, name, staticmethod(function))
        patch(torch.version, "cuda", "13.0")
        # They try patterns out on the GPU.
        patch(joint_graph, "lazy_init", lambda *_: None)
        patch(post_grad, "lazy_init", lambda *_: None)
        patch(graph, "is_same_tensor", lambda one, other: one is other)
        # Of the smallest weights it takes the values.
        patch(FakeTensor, "tolist", lambda one: [1.0] * one.numel())
        patch(triton_helpers, "set_driver_to_gpu", lambda: None)
        stack.enter_context(absent_gpu(gpu.capability))
        # Whatever was compiled before, or will be after, asks about this machine as it is.
        _forget_answers()
        stack.callback(_forget_answers)
        yield


def _forget_answers() -> None:
    """Torch keeps what it has found out about triton and its GPU."""
    for answer in vars(_triton).values():
        if hasattr(answer, "cache_clear"):
            answer.cache_clear()


def on_the_gpu(tensors: Any) -> Any:
    """Tensors of the same shapes and types there, which hold nothing."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        return tree_map_only(
            Tensor, lambda one: torch.empty(one.shape, dtype=one.dtype, device="cuda"), tensors
        )


class PlainIndexing(TorchFunctionMode):
    """Indexing by operators alone; torch's own looks for a GPU before it looks at the tensor."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function is not Tensor.__getitem__:
            return function(*arguments, **(named or {}))
        value, index = arguments
        if isinstance(index, Tensor):
            return torch.ops.aten.index.Tensor(value, [index])
        for dimension, one in enumerate(index):
            assert one is None or one == slice(None), index
            value = value.unsqueeze(dimension) if one is None else value
        return value


def _in_one_mode(program: ExportedProgram) -> None:
    """Gives weights and example inputs the fake mode that the export went on with."""
    placeholder = next(iter(program.graph.nodes))
    mode = placeholder.meta["val"].fake_mode

    def again(value: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )

    for name, value in program.state_dict.items():
        kept = again(value)
        parameter = nn.Parameter(kept, requires_grad=False)
        program.state_dict[name] = parameter if isinstance(value, nn.Parameter) else kept
    arguments, named = program.example_inputs
    program.example_inputs = (tree_map(again, arguments), named)


def generate(program: ExportedProgram, gpu: Gpu, settings: dict[str, object]) -> Generated:
    """The code of a program that was exported from fake tensors on the GPU."""
    _in_one_mode(program)
    found: list[Generated] = []

    def stop(wrapper: PythonWrapperCodegen) -> None:
        found.append(
            Generated(wrapper.wrapper_call.getvalue(), wrapper.kernel_autotune_defs.getvalue())
        )
        raise _Done

    with (
        absent_cuda(gpu),
        mock.patch.object(PythonWrapperCodegen, "generate_and_run_autotune_block", stop),
    ):
        try:
            torch._inductor.aoti_compile_and_package(
                program, package_path="never.pt2", inductor_configs=settings
            )
        except _Done:
            pass
    return found[0]


def compile_kernels(generated: Generated, gpu: Gpu, suffix: str) -> dict[str, bytes]:
    """Machine code of the kernels whose name has the suffix, from the source Inductor wrote."""
    made: dict[str, bytes] = {}

    def define(_: AsyncCompile, name: str, source: str, device_str: str) -> Any:
        if suffix not in name:
            return None
        kernel = torch._inductor.codecache.PyCodeCache.load(source)
        tuner: CachingAutotuner = getattr(kernel, name)
        binary = tuner._precompile_config(tuner.configs[0])
        key = tuner.inductor_meta["kernel_name"]
        made[key] = binary.kernel.asm["cubin"]
        return tuner

    with absent_cuda(gpu), mock.patch.object(AsyncCompile, "triton", define):
        exec(generated.kernels, {})
    return made
