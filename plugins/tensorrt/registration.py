"""Registers the plugins with TensorRT's Python plugin interface, one kernel of PTX for each.

The interface reads signatures, not source: functions are made here and given theirs. It is handed
in, so that importing this module asks for no TensorRT.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

from plugins.gpu.artifact import Artifact
from plugins.gpu.device import Gpu
from plugins.gpu.launch_plan import Plan
from plugins.onnx_domain import DOMAIN
from plugins.tensorrt import sizes
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.kernel import compile_plugin
from plugins.tensorrt.plugin import Plugin, Setting

_SHORT = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}
_SHORT |= {"int32": "INT32", "int64": "INT64"}


@dataclass(frozen=True)
class Registry:
    """TensorRT and its plugin module, and the GPU that kernels are compiled for."""

    trt: Any
    plugin: Any
    gpu: Gpu

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """TensorRT's dtypes by their names here."""
        trt = self.trt
        return {
            "float32": trt.float32,
            "float16": trt.float16,
            "bfloat16": trt.bfloat16,
            "int32": trt.int32,
            "int64": trt.int64,
        }

    def dtypes(self, descriptions: Sequence[Any]) -> list[str]:
        """Names of the dtypes of some tensors."""
        return [
            next(name for name, known in self.types.items() if known == one.dtype)
            for one in descriptions
        ]

    def symbolic(self, operator: str, left: Any, right: Any) -> Any:
        """An operator on shape expressions; numbers become expressions first."""
        trtp = self.plugin
        first = trtp.ShapeExpr(left) if isinstance(left, int) else left
        apply = {
            sizes.PLUS: lambda: first + right,
            sizes.TIMES: lambda: first * right,
            sizes.TILES: lambda: trtp.cdiv(first, right),
            sizes.PART: lambda: first // right,
            sizes.LEAST: lambda: trtp.min(first, right),
        }
        return apply[operator]()


def register(registry: Registry) -> None:
    """Makes every plugin known; those that this process has registered already are left."""
    namespace = getattr(registry.plugin.op, DOMAIN, None)
    for plugin in PLUGINS.values():
        if not hasattr(namespace, plugin.name):
            _register(plugin, registry)


def _register(plugin: Plugin, registry: Registry) -> None:
    trtp, name = registry.plugin, f"{DOMAIN}::{plugin.name}"
    trtp.register(name)(_description(plugin, registry))
    trtp.autotune(name)(_tactics(plugin, registry))
    trtp.aot_impl(name)(_implementation(plugin, registry))


def _signed(function: Any, plugin: Plugin, registry: Registry, more: Mapping[str, Any]) -> Any:
    """The function with the parameters that TensorRT looks for: tensors, attributes, others."""
    returned = more["return"]
    given = {one.name: registry.plugin.TensorDesc for one in plugin.inputs}
    given |= plugin.attributes
    given |= {name: kind for name, kind in more.items() if name != "return"}
    function.__signature__ = Signature(
        [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for name, kind in given.items()
        ],
        return_annotation=returned,
    )
    return function


def _description(plugin: Plugin, registry: Registry) -> Any:
    """Shapes and dtypes of the outputs, and which of them is an input updated in place."""
    trtp = registry.plugin

    def describe(*tensors: Any, **attributes: Any) -> tuple[Any, ...]:
        dtypes = plugin.output_dtypes(registry.dtypes(tensors), attributes)
        words = plugin.words([one.shape_expr for one in tensors], attributes)
        # Dtypes are asked for before there are shapes. A number would then become an expression of
        # whatever network was described last, which may be gone.
        early = any(size.is_fake for one in tensors for size in one.shape_expr)
        found, names = [], [one.name for one in plugin.inputs]
        for output, dtype in zip(plugin.outputs, dtypes, strict=True):
            if output.alias:
                found.append(tensors[names.index(output.alias)].aliased())
                continue
            shape = tuple(
                trtp.ShapeExpr() if early else sizes.evaluate(size, words, registry.symbolic)
                for size in output.sizes or ()
            )
            found.append(trtp.from_shape_expr(shape, registry.types[dtype]))
        return tuple(found)

    outputs = (trtp.TensorDesc,) * len(plugin.outputs)
    return _signed(describe, plugin, registry, {"return": tuple[outputs]})  # type: ignore[valid-type]


def _split(plugin: Plugin, given: Sequence[Any]) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """(tensors, attributes by name, the rest) of positional arguments."""
    count, many = len(plugin.inputs), len(plugin.attributes)
    attributes = dict(zip(plugin.attributes, given[count : count + many], strict=True))
    return list(given[:count]), attributes, list(given[count + many :])


def setting_of(
    plugin: Plugin, registry: Registry, tensors: Sequence[Any], attributes: Mapping[str, Any]
) -> Setting:
    """What plans follow from; a dynamic size counts as what the profile calls usual.

    Plans must not look at it: profiles differ in it, and TensorRT keeps one kernel a tactic for all
    of them.
    """
    shapes = [tuple(one.shape.opt if one.shape.is_dynamic else one.shape) for one in tensors]
    dtype = plugin.element(registry.dtypes(tensors), attributes)
    return Setting(dtype, registry.gpu, attributes, plugin.words(shapes, attributes))


def _tactics(plugin: Plugin, registry: Registry) -> Any:
    """One tactic a plan, numbered from 1, in the dtypes of the network and linear layouts."""
    trtp = registry.plugin

    def tune(*given: Any) -> list[Any]:
        tensors, attributes, (outputs,) = _split(plugin, given)
        count = len(plugin.plans(setting_of(plugin, registry, tensors, attributes)))
        dtypes = registry.dtypes([*tensors, *outputs])
        types = ", ".join(_SHORT[dtype] for dtype in dtypes)
        return [trtp.AutoTuneCombination(types, "LINEAR", list(range(1, count + 1)))]

    outputs = (trtp.TensorDesc,) * len(plugin.outputs)
    more = {"outputs": tuple[outputs], "return": list[trtp.AutoTuneCombination]}  # type: ignore[valid-type, name-defined]
    return _signed(tune, plugin, registry, more)


def _implementation(plugin: Plugin, registry: Registry) -> Any:
    """The kernel of one tactic, how it is launched, and its scalars."""
    trtp = registry.plugin
    compiled: dict[tuple[Plan, str], Artifact] = {}

    def implement(*given: Any) -> tuple[str, str, Any, Any]:
        tensors, attributes, (_, tactic) = _split(plugin, given)
        setting = setting_of(plugin, registry, tensors, attributes)
        plan = plugin.plans(setting)[max(tactic, 1) - 1]
        key = (plan, setting.dtype)
        if key not in compiled:
            compiled[key] = compile_plugin(plugin, plan, setting)
        words = plugin.words([one.shape_expr for one in tensors], attributes)
        launch = _launch(plugin.grid(plan), words, compiled[key], registry)
        scalars = trtp.SymIntExprs(len(plugin.scalars))
        for place, size in enumerate(plugin.scalars.values()):
            found = sizes.evaluate(size, words, registry.symbolic)
            scalars[place] = trtp.SymInt32(found)
        return compiled[key].entry, compiled[key].ptx, launch, scalars

    outputs = (trtp.TensorDesc,) * len(plugin.outputs)
    returned = tuple[str, str, trtp.KernelLaunchParams, trtp.SymIntExprs]  # type: ignore[name-defined]
    more = {"outputs": tuple[outputs], "tactic": int, "return": returned}  # type: ignore[valid-type]
    return _signed(implement, plugin, registry, more)


def _launch(
    grid: Sequence[sizes.Size], words: Mapping[str, Any], artifact: Artifact, registry: Registry
) -> Any:
    launch = registry.plugin.KernelLaunchParams()
    for axis, size in zip(("grid_x", "grid_y", "grid_z"), grid, strict=False):
        setattr(launch, axis, sizes.evaluate(size, words, registry.symbolic))
    launch.block_x, launch.shared_mem = artifact.threads, artifact.shared_bytes
    return launch
