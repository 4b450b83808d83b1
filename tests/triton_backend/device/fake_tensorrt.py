"""TensorRT as its executor sees it, on a CPU: plans name ONNX graphs that onnxruntime runs.

It reads and writes raw addresses and checks shapes against profiles, as the real one does, so that
a tensor bound to a wrong name, size or place shows in the results.
"""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from build_engine import bindings
from build_engine.contract import EngineContract

VERSION = "11.1.0"


class ILogger:
    Severity = SimpleNamespace(ERROR=1, INTERNAL_ERROR=2)


class Runtime:
    def __init__(self, log: ILogger) -> None:
        self.log = log

    def deserialize_cuda_engine(self, plan: Any) -> Engine | None:
        if bytes(plan[:1]) != b"{":
            self.log.log(1, "Serialization assertion failed.")
            return None
        return Engine(**json.loads(bytes(plan)))


class Engine:
    device_memory_size_v2 = 4096

    def __init__(self, graph: str, tensors: dict, profiles: list, aliased: bool) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(graph, options)
        self.tensors, self.profiles, self.aliased = tensors, profiles, aliased
        self.contexts: list[Context] = []

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def get_tensor_name(self, n: int) -> str:
        return list(self.tensors)[n]

    def get_tensor_mode(self, name: str) -> str:
        return self.tensors[name][0]

    def get_tensor_dtype(self, name: str) -> str:
        return self.tensors[name][1]

    def get_tensor_profile_shape(self, name: str, n: int) -> list[list[int]]:
        least, most = self.profiles[n][name]
        return [least, most, most]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """As of 11.2, nothing is told of plugins; an engine that is wrong has one pool for all."""
        return None if self.aliased else "kv_pool.1"

    def create_execution_context(self, strategy: str) -> Context:
        assert strategy == "user managed"
        self.contexts.append(Context(self))
        return self.contexts[-1]


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.memory, self.profile, self.runs = engine, (0, 0), -1, 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.places: dict[str, int] = {}

    def set_device_memory(self, address: int, size: int) -> None:
        assert address
        assert size >= self.engine.device_memory_size_v2
        self.memory = (address, size)

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile = profile
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, most = self.engine.profiles[self.profile][name]
        assert all(a <= n <= b for a, n, b in zip(least, shape, most, strict=True)), name
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.places[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert self.memory[0]
        assert set(self.places) == set(self.engine.tensors)
        self.runs += 1
        names = [value.name for value in self.engine.session.get_outputs()]
        given = {name: self._memory(name, shape) for name, shape in self.shapes.items()}
        for name, found in zip(names, self.engine.session.run(names, given), strict=True):
            pool = bindings.pool_of(name)
            assert pool is None or self.places[name] == self.places[pool]
            self._memory(name, found.shape)[:] = found
        return True

    def _memory(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        dtype = np.dtype(self.engine.tensors[name][1])
        size = math.prod(shape) * dtype.itemsize
        buffer = (ctypes.c_char * size).from_address(self.places[name])
        return np.frombuffer(buffer, dtype).reshape(shape)


API = SimpleNamespace(
    __version__=VERSION,
    ILogger=ILogger,
    Runtime=Runtime,
    DataType=SimpleNamespace(FLOAT="float32", BF16="bfloat16", INT32="int32", INT64="int64"),
    TensorIOMode=SimpleNamespace(INPUT="in", OUTPUT="out"),
    ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="user managed"),
)


def write_plans(
    directory: Path, onnx_engine: Path, contract: EngineContract, aliased: bool = True
) -> None:
    """A plan of each function over an ONNX engine's graphs, with the profiles of the contract."""
    place = (contract.target, contract.geometry, contract.limits, contract.page_size)
    for name, signature in bindings.signatures(contract).items():
        tensors = {b.name: ("in", b.dtype) for b in signature.inputs}
        tensors |= {b.name: ("out", b.dtype) for b in signature.outputs}
        profiles = [
            {
                b.name: [_shape(b, ranges, "least"), _shape(b, ranges, "most")]
                for b in signature.inputs
            }
            for ranges in bindings.profiles(*place)
        ]
        plan = {"graph": str(onnx_engine / f"{name}.onnx"), "tensors": tensors}
        text = json.dumps({**plan, "profiles": profiles, "aliased": aliased})
        (directory / bindings.plan_file(contract.target, name)).write_text(text)


def _shape(binding: bindings.Binding, ranges: dict[str, bindings.Range], field: str) -> list[int]:
    return [getattr(ranges[n], field) if isinstance(n, str) else n for n in binding.shape]
