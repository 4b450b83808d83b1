"""Network, parser and configuration of the double."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from tests.tensorrt_double.names import DataType
from tests.tensorrt_double.plugin import Definition, Plugins

KINDS = {1: DataType.FLOAT, 16: DataType.BF16, 6: DataType.INT32, 7: DataType.INT64}


@dataclass
class ITensor:
    name: str
    dtype: DataType
    shape: tuple[int, ...]


@dataclass
class INetworkDefinition:
    """What a parser filled."""

    flags: int
    model: onnx.ModelProto | None = None
    definitions: dict[str, Definition] = field(default_factory=dict)
    refittable: list[str] = field(default_factory=list)

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    @property
    def num_outputs(self) -> int:
        return len(self.model.graph.output)

    def get_input(self, index: int) -> ITensor:
        return _tensor(self.model.graph.input[index])

    def get_output(self, index: int) -> ITensor:
        return _tensor(self.model.graph.output[index])

    def mark_weights_refittable(self, name: str) -> bool:
        used = {one for node in self.model.graph.node for one in node.input}
        if name not in used or name not in {one.name for one in self.model.graph.initializer}:
            return False
        self.refittable.append(name)
        return True


def _tensor(value: onnx.ValueInfoProto) -> ITensor:
    kind = value.type.tensor_type
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim)
    return ITensor(value.name, KINDS[kind.elem_type], shape)


@dataclass
class ParserError:
    text: str

    def desc(self) -> str:
        return self.text


@dataclass
class OnnxParser:
    """Looks each node outside the standard domain up among the plugins."""

    network: INetworkDefinition
    logger: Any
    plugins: Plugins
    errors: list[ParserError] = field(default_factory=list)

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    def get_error(self, index: int) -> ParserError:
        return self.errors[index]

    def parse_from_file(self, model: str) -> bool:
        assert isinstance(model, str)
        made = onnx.load(model, load_external_data=False)
        folder = Path(model).parent
        for tensor in made.graph.initializer:
            places = [one.value for one in tensor.external_data if one.key == "location"]
            self._expect(all((folder / name).is_file() for name in places), f"no {places}")
        for node in made.graph.node:
            if node.domain:
                self._plugin(node)
        self._expect(not made.functions, "functions of plugins' names hide the plugins")
        self.network.model = made
        return not self.errors

    def _expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.errors.append(ParserError(text))

    def _plugin(self, node: onnx.NodeProto) -> None:
        given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        namespace = given.pop("plugin_namespace", b"").decode()
        version, aot = given.pop("plugin_version", b"1"), given.pop("aot", None)
        definition = self.plugins.known.get(f"{namespace}::{node.op_type}")
        if definition is None or version != b"1":
            text = f"Plugin not found: {node.op_type} of namespace {namespace}."
            self.errors.append(ParserError(text))
            return
        self._expect(aot == 1 and definition.implement is not None, "no AOT implementation")
        same = {name: type(value) for name, value in given.items()} == definition.attributes
        self._expect(same, f"attributes of {node.op_type} are {given}")
        self._expect(len(node.input) == len(definition.tensors), f"inputs of {node.op_type}")
        self.network.definitions[node.name] = definition


@dataclass
class IOptimizationProfile:
    shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def set_shape(self, input: str, min: Sequence, opt: Sequence, max: Sequence) -> None:
        assert len(min) == len(opt) == len(max)
        if not all(0 <= a <= b <= c for a, b, c in zip(min, opt, max, strict=True)):
            raise ValueError(f"shape bounds of {input} are inconsistent")
        self.shapes[input] = (tuple(min), tuple(opt), tuple(max))


@dataclass
class ITimingCache:
    content: bytes

    def serialize(self) -> bytes:
        return self.content


@dataclass
class IBuilderConfig:
    version: str
    flags: set[Any] = field(default_factory=set)
    features: set[Any] = field(default_factory=set)
    profiles: list[IOptimizationProfile] = field(default_factory=list)
    profiling_verbosity: Any = None
    progress_monitor: Any = None
    cache: ITimingCache | None = None

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        (self.features.add if enable else self.features.discard)(feature)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        return ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        if cache.content and not cache.content.startswith(self.version.encode()):
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        return self.cache
