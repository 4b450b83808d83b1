"""One function's plan on the GPU: checked against the contract, run on named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from build_engine import bindings
from build_engine.bindings import Signature
from build_engine.errors import EngineError
from triton_backend.device import tensorrt_library
from triton_backend.device.executor import Tensors
from triton_backend.device.gpu import settle, stream_handle
from triton_backend.device.graphs import Bound
from triton_backend.device.plan_checks import check_alias, check_profiles, check_tensors
from triton_backend.device.shapes import Profile, choose_profile, output_shapes
from triton_backend.device.staging import DTYPES, aligned
from triton_backend.device.tensorrt_library import Library


@dataclass(frozen=True)
class Memory:
    """Device memory that contexts share, as only one runs at a time."""

    block: Tensor

    @property
    def place(self) -> tuple[int, int]:
        """Address and bytes."""
        return self.block.data_ptr(), self.block.numel()


@dataclass(frozen=True)
class _Execution:
    """A context bound to its tensors, which it keeps; every call enqueues it once more."""

    library: Library
    name: str
    context: Any
    inputs: Tensors
    outputs: Tensors

    def __call__(self) -> Tensors:
        device = next(iter(self.outputs.values())).device
        if not self.context.execute_async_v3(stream_handle(device)):
            raise EngineError(f"{self.name} failed on the GPU: {self.library.why()}.")
        return self.outputs


class Plan:
    """An engine and a context for each of its profiles.

    Raises:
        EngineError: the plan is not what the contract says.
    """

    def __init__(
        self,
        library: Library,
        name: str,
        engine: Any,
        signature: Signature,
        sizes: Mapping[str, int],
    ) -> None:
        self._library, self._name, self._engine = library, name, engine
        self._signature = signature
        check_tensors(name, tensorrt_library.tensors(library, engine), signature)
        inputs = {binding.name: binding for binding in signature.inputs}
        self._profiles: list[Profile] = list(tensorrt_library.profiles(engine, inputs))
        check_profiles(name, signature, sizes, self._profiles)
        for binding in signature.outputs:
            check_alias(name, binding.name, tensorrt_library.aliased_input(engine, binding.name))
        self._contexts: list[Any] = []
        self._memory: Memory | None = None
        self._config: Any = None

    @property
    def workspace_bytes(self) -> int:
        """Device memory that a context needs."""
        return tensorrt_library.workspace_bytes(self._engine)

    def open(self, memory: Memory, config: Any) -> None:
        """Makes a context for each profile, over shared memory or by the library's own config."""
        self._memory, self._config = memory, config
        self._contexts = [self._context(n) for n in range(len(self._profiles))]

    def _context(self, profile: int) -> Any:
        assert self._memory is not None
        context = tensorrt_library.make_context(
            self._library, self._engine, self._memory.place, self._config
        )
        device = self._memory.block.device
        try:
            taken = context.set_optimization_profile_async(profile, stream_handle(device))
        except RuntimeError:  # The bindings raise where C++ returns false.
            taken = False
        if not taken:
            raise EngineError(f"{self._name}: profile {profile} is refused: {self._library.why()}.")
        settle(device)
        return context

    def _profile_for(self, inputs: Mapping[str, Tensor]) -> int:
        shapes = {name: tuple(values.shape) for name, values in inputs.items()}
        profile = choose_profile(shapes, self._profiles)
        if profile is None:
            raise EngineError(f"{self._name}: no profile takes inputs of {shapes}.")
        return profile

    def plain(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """One execution in the profile's own context, into fresh outputs."""
        return self._bind(self._contexts[self._profile_for(inputs)], inputs)()

    def bind(self, inputs: Mapping[str, Tensor]) -> Bound:
        """Executions on these very tensors, in a context and outputs of their own."""
        return self._bind(self._context(self._profile_for(inputs)), inputs)

    def _outputs(self, inputs: Mapping[str, Tensor]) -> Tensors:
        shapes = output_shapes(
            self._signature, {name: tuple(values.shape) for name, values in inputs.items()}
        )
        assert self._memory is not None
        device = self._memory.block.device
        return {
            binding.name: torch.empty(
                shapes[binding.name], dtype=DTYPES[binding.dtype], device=device
            )
            for binding in self._signature.outputs
            if bindings.pool_of(binding.name) is None
        }

    def _bind(self, context: Any, inputs: Mapping[str, Tensor]) -> Bound:
        outputs = self._outputs(inputs)
        given = {
            name: values if bindings.is_pool(name) else aligned(values)
            for name, values in inputs.items()
        }
        places = {name: values.data_ptr() for name, values in given.items()}
        for binding in self._signature.outputs:
            pool = bindings.pool_of(binding.name)
            target = outputs[binding.name] if pool is None else inputs[pool]
            places[binding.name] = target.data_ptr()
        shapes = {name: tuple(values.shape) for name, values in given.items()}
        # Where one is refused, the last call's would stay in place.
        taken = {name: context.set_input_shape(name, shape) for name, shape in shapes.items()}
        for name, place in places.items():
            if not (taken.get(name, True) and context.set_tensor_address(name, place)):
                raise EngineError(f"{self._name} does not take {name}: {self._library.why()}.")
        return _Execution(self._library, self._name, context, given, outputs)
