"""The double of `tensorrt.plugin`: registration with the rules of the real validators."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tensorrt_double.expressions import (
    KernelLaunchParams,
    ShapeExpr,
    SymIntExprs,
)

RESERVED_NAMESPACES = {"", "trt", "tensorrt", "std"}
RESERVED_NAMES = {"outputs", "stream", "tactic"}
ATTRIBUTES = (int, float, bytes, bool, str)


class Shape(tuple):
    """Sizes with -1 for dynamic ones; `opt` only where there are any."""

    def __new__(cls, sizes: Sequence[int], opt: Sequence[int]) -> Shape:
        made = super().__new__(cls, sizes)
        made._opt = tuple(opt)
        return made

    @property
    def is_dynamic(self) -> bool:
        return -1 in self

    @property
    def opt(self) -> tuple[int, ...]:
        if not self.is_dynamic:
            raise ValueError("opt property is only accessible if is_dynamic is true")
        return self._opt


class TensorDesc:
    """Dtype and symbolic shape of a tensor; `shape` exists while tactics are tried."""

    def __init__(self, shape_expr: Sequence[ShapeExpr], dtype: Any) -> None:
        self.shape_expr, self.dtype = list(shape_expr), dtype
        self.shape: Shape | None = None
        self.source: TensorDesc | None = None

    def like(self) -> TensorDesc:
        return TensorDesc(self.shape_expr, self.dtype)

    def aliased(self) -> TensorDesc:
        made = self.like()
        made.source = self
        return made

    @property
    def ndim(self) -> int:
        return len(self.shape_expr)


def from_shape_expr(shape_expr: Sequence[Any], dtype: Any) -> TensorDesc:
    if not isinstance(shape_expr, tuple):
        raise TypeError("sizes come as a tuple")
    sizes = [one if isinstance(one, ShapeExpr) else ShapeExpr(one) for one in shape_expr]
    return TensorDesc(sizes, dtype)


class AutoTuneCombination:
    """Dtypes and layouts that move together, and tactics for them."""

    def __init__(self, io_types: str, layouts: str, tactics: Sequence[int]) -> None:
        assert all(isinstance(number, int) and number > 0 for number in tactics)
        self.io_types = [one.strip() for one in io_types.split(",")]
        self.layouts, self.tactics = layouts, list(tactics)


@dataclass
class Definition:
    """One registered plugin."""

    name: str
    describe: Callable[..., Any]
    tensors: list[str]
    attributes: dict[str, type]
    outputs: int
    tune: Callable[..., Any] | None = None
    implement: Callable[..., Any] | None = None


@dataclass
class Plugins:
    """The state of one `tensorrt.plugin`."""

    known: dict[str, Definition] = field(default_factory=dict)

    def register(self, name: str, lazy_register: bool = False) -> Callable:
        namespace, _, plain = name.partition("::")
        if namespace in RESERVED_NAMESPACES or "." in name:
            raise ValueError(f"Provided namespace {namespace} is a reserved namespace")
        if name in self.known:
            raise ValueError(f"already has a definition for '{plain}'")

        def decorate(function: Callable) -> Callable:
            self.known[name] = Definition(name, function, *_registered(function))
            return function

        return decorate

    def autotune(self, name: str) -> Callable:
        def decorate(function: Callable) -> Callable:
            definition = self._definition(name)
            wanted = [*definition.tensors, *definition.attributes, "outputs"]
            returned = _agree(function, definition, wanted)
            assert typing.get_origin(returned) is list
            assert typing.get_args(returned) == (AutoTuneCombination,)
            definition.tune = function
            return function

        return decorate

    def aot_impl(self, name: str) -> Callable:
        def decorate(function: Callable) -> Callable:
            definition = self._definition(name)
            wanted = [*definition.tensors, *definition.attributes, "outputs", "tactic"]
            returned = _agree(function, definition, wanted)
            if typing.get_origin(returned) is not tuple:
                raise ValueError(f"Return annotation is {returned}")
            entry, code, launch, extra = typing.get_args(returned)
            if not {entry, code} <= {str, bytes} or launch is not KernelLaunchParams:
                raise ValueError(f"Return annotation is {returned}")
            assert issubclass(extra, SymIntExprs)
            definition.implement = function
            return function

        return decorate

    def _definition(self, name: str) -> Definition:
        if name not in self.known:
            raise ValueError(f"Plugin {name} is not registered.")
        return self.known[name]

    def __getattr__(self, name: str) -> types.SimpleNamespace:
        """`tensorrt.plugin.op.NAMESPACE`, with what is registered at the moment."""
        prefix = f"{name}::"
        found = {
            key.removeprefix(prefix): one
            for key, one in self.__dict__.get("known", {}).items()
            if key.startswith(prefix)
        }
        if not found:
            raise AttributeError(f"object has no attribute '{name}'")
        return types.SimpleNamespace(**found)


def _registered(function: Callable) -> tuple[list[str], dict[str, type], int]:
    """(tensors, attributes, number of outputs) of a description, or why it is refused."""
    tensors, attributes = [], {}
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        _plain(name, parameter)
        if issubclass(parameter.annotation, TensorDesc):
            if attributes:
                raise ValueError("TensorDescs args and attribute args cannot be interspersed.")
            tensors.append(name)
            continue
        if not tensors:
            raise ValueError("TensorDescs args should come first")
        if name in RESERVED_NAMES or parameter.annotation not in ATTRIBUTES:
            raise ValueError(f"Attribute '{name}' is not allowed or of a type that is not.")
        attributes[name] = parameter.annotation
    returned = signature.return_annotation
    if typing.get_origin(returned) is not tuple:
        raise ValueError("Return types can only be TensorDesc or Tuple[TensorDesc].")
    assert all(issubclass(one, TensorDesc) for one in typing.get_args(returned))
    return tensors, attributes, len(typing.get_args(returned))


def _agree(function: Callable, definition: Definition, wanted: list[str]) -> Any:
    """The return annotation of a function whose parameters are those that are wanted."""
    signature = inspect.signature(function)
    if list(signature.parameters) != wanted:
        raise ValueError(f"{signature} does not match the expected input arg schema: {wanted}")
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if name == "outputs":
            assert typing.get_origin(kind) is tuple
            assert len(typing.get_args(kind)) == definition.outputs
        elif name == "tactic":
            assert kind is int
        elif name in definition.attributes:
            assert kind is definition.attributes[name]
        else:
            assert issubclass(kind, TensorDesc)
    if signature.return_annotation is inspect.Signature.empty:
        raise ValueError("No return annotation found for aot_impl function.")
    return signature.return_annotation


def _plain(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise ValueError(f"Argument {name} is not a positional-or-keyword arg")
    if parameter.annotation is inspect.Parameter.empty:
        raise ValueError(f"Argument {name} does not have a type annotation.")
    if parameter.default is not inspect.Parameter.empty:
        raise ValueError(f"Argument {name} has a default value.")
