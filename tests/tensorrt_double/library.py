"""The double of `tensorrt`: builder, runtime and refitter, and how a test puts it in place."""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from tests.tensorrt_double import expressions, names
from tests.tensorrt_double.lifecycle import Launch, Lives
from tests.tensorrt_double.names import DataType, LayerInformationFormat, PreviewFeature
from tests.tensorrt_double.network import (
    KINDS,
    IBuilderConfig,
    INetworkDefinition,
    IOptimizationProfile,
    OnnxParser,
)
from tests.tensorrt_double.plugin import (
    AutoTuneCombination,
    Plugins,
    TensorDesc,
    from_shape_expr,
)

_BYTES = {DataType.FLOAT: 4, DataType.BF16: 2}


@dataclass
class Memory:
    """What the double remembers, and what it is told to get wrong."""

    version: str
    plugins: Plugins = field(default_factory=Plugins)
    networks: list[INetworkDefinition] = field(default_factory=list)
    configs: list[IBuilderConfig] = field(default_factory=list)
    launches: list[list[Launch]] = field(default_factory=list)
    refitted: dict[str, bytes] = field(default_factory=dict)
    wrong: str = ""  # "build", "load", "alias", "names" or "refit"


class Weights:
    """Values at an address, of a type and a number; a prototype has no address."""

    def __init__(self, type: DataType, ptr: int, count: int) -> None:
        self.dtype, self.ptr, self.size = type, ptr, count

    def read(self) -> bytes:
        return ctypes.string_at(self.ptr, self.size * _BYTES[self.dtype])


class Builder:
    def __init__(self, memory: Memory, logger: Any) -> None:
        self.memory, self.logger = memory, logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        self.memory.networks.append(INetworkDefinition(flags))
        return self.memory.networks[-1]

    def create_builder_config(self) -> IBuilderConfig:
        self.memory.configs.append(IBuilderConfig(self.memory.version))
        return self.memory.configs[-1]

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> bytes | None:
        launches = [
            one for profile in config.profiles for one in Lives(network, profile).launches()
        ]
        self.memory.launches.append(launches)
        aliases = _aliases(network)
        assert not aliases or PreviewFeature.ALIASED_PLUGIN_IO_10_03 in config.features
        if self.memory.wrong == "build":
            self.logger.log(names.ILogger.Severity.ERROR, "[builder.cpp:7]  no kernel  fits.")
            return None
        monitor = config.progress_monitor
        monitor.phase_start("Building Engine", None, 2)
        assert all(monitor.step_complete("Building Engine", step) is True for step in range(2))
        monitor.phase_finish("Building Engine")
        config.cache.content = f"{self.memory.version} timed {len(self.memory.launches)}".encode()
        plan = {"weights": _prototypes(network)}
        return b"plan" + json.dumps(plan).encode()


def _aliases(network: INetworkDefinition) -> dict[str, str]:
    """Outputs that a plugin's description calls an input."""
    found = {}
    for node in network.model.graph.node:
        if node.domain and node.op_type == "page_write":
            found[node.output[0]] = node.input[3]
    return found


def _prototypes(network: INetworkDefinition) -> dict[str, tuple[int, int]]:
    stored = {one.name: one for one in network.model.graph.initializer}
    return {
        name: (int(KINDS[stored[name].data_type]), math.prod(stored[name].dims))
        for name in network.refittable
    }


class ICudaEngine:
    def __init__(self, memory: Memory, plan: dict[str, Any]) -> None:
        self.memory, self.plan = memory, plan

    @property
    def get_aliased_input_tensor(self) -> Callable[[str], str | None]:
        """10.14 has none, and 11.2 tells nothing of plugins' aliases."""
        if self.memory.version.startswith("10."):
            raise AttributeError("get_aliased_input_tensor")
        return lambda _: "token_ids" if self.memory.wrong == "alias" else None

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector()


class EngineInspector:
    def get_engine_information(self, format: LayerInformationFormat) -> str:
        assert format is LayerInformationFormat.JSON
        return json.dumps({"Layers": []})


class Runtime:
    def __init__(self, memory: Memory, logger: Any) -> None:
        self.memory = memory

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if self.memory.wrong == "load" or not serialized_engine.startswith(b"plan"):
            return None
        return ICudaEngine(self.memory, json.loads(serialized_engine[4:]))


class Refitter:
    """Takes weights of the right name, type and size, once each."""

    def __init__(self, memory: Memory, engine: ICudaEngine, logger: Any) -> None:
        self.memory, self.wanted = memory, engine.plan["weights"]
        self.logger, self.given = logger, dict[str, Weights]()

    def get_all_weights(self) -> list[str]:
        return [*self.wanted, *(["/constant_7"] if self.memory.wrong == "names" else [])]

    def get_weights_prototype(self, weights_name: str) -> Weights:
        kind, count = self.wanted[weights_name]
        return Weights(DataType(kind), 0, count)

    def set_named_weights(self, name: str, weights: Weights) -> bool:
        assert name not in self.given, f"{name} is set twice"
        kind, count = self.wanted.get(name, (None, None))
        if (kind, count) != (weights.dtype, weights.size):
            return False
        self.given[name] = weights
        return True

    def get_missing_weights(self) -> list[str]:
        return [name for name in self.wanted if name not in self.given]

    def refit_cuda_engine(self) -> bool:
        if self.memory.wrong == "refit":
            self.logger.log(names.ILogger.Severity.ERROR, "out of memory.")
            return False
        self.memory.refitted = {name: one.read() for name, one in self.given.items()}
        return True


def install(patch: pytest.MonkeyPatch, version: str) -> Memory:
    """Puts a double of a release where `import tensorrt` finds it."""
    memory = Memory(version)
    library, plugin = ModuleType("tensorrt"), ModuleType("tensorrt.plugin")
    names.fill(library, version)
    library.Builder = lambda logger: Builder(memory, logger)
    library.OnnxParser = lambda network, logger: OnnxParser(network, logger, memory.plugins)
    library.Runtime = lambda logger: Runtime(memory, logger)
    library.Refitter = lambda engine, logger: Refitter(memory, engine, logger)
    library.Weights, library.plugin = Weights, plugin
    for kind in (expressions.ShapeExpr, expressions.SymInt32, expressions.SymIntExprs):
        setattr(plugin, kind.__name__, kind)
    plugin.KernelLaunchParams, plugin.TensorDesc = expressions.KernelLaunchParams, TensorDesc
    plugin.AutoTuneCombination, plugin.from_shape_expr = AutoTuneCombination, from_shape_expr
    plugin.cdiv, plugin.min, plugin.max = expressions.cdiv, expressions.least, expressions.most
    plugin.register, plugin.autotune = memory.plugins.register, memory.plugins.autotune
    plugin.aot_impl, plugin.op = memory.plugins.aot_impl, memory.plugins
    patch.setitem(sys.modules, "tensorrt", library)
    patch.setitem(sys.modules, "tensorrt.plugin", plugin)
    return memory
