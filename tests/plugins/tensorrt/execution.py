"""Runs plugin nodes the way TensorRT does, their kernels in Triton's interpreter.

Shapes, grids and scalars come from the plugins' own values with the sizes of this execution filled
in; arguments are inputs, scalars, outputs; an alias is one buffer under two names; every other
output begins as garbage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch import Tensor

from plugins.gpu.device import Gpu
from plugins.onnx_domain import DOMAIN
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.kernel import takes_tuple
from plugins.tensorrt.plugin import Plugin, Setting
from plugins.tensorrt.sizes import evaluate

Given = Mapping[str, Any]


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def run_plugin(
    plugin: Plugin, inputs: Sequence[Tensor], attributes: Given, gpu: Gpu, tactic: int = 1
) -> list[Tensor]:
    """The outputs of one launch."""
    for tensor, described in zip(inputs, plugin.inputs, strict=True):
        assert tensor.is_contiguous()
        assert described.dtype in ("element", _name(tensor)), (plugin.name, described, tensor.dtype)
    words = plugin.words([tensor.shape for tensor in inputs], attributes)
    _check_shapes(plugin, inputs, words)
    dtypes = [_name(tensor) for tensor in inputs]
    outputs = []
    kinds = plugin.output_dtypes(dtypes, attributes)
    for described, kind in zip(plugin.outputs, kinds, strict=True):
        if described.alias:
            names = [one.name for one in plugin.inputs]
            outputs.append(inputs[names.index(described.alias)])
        else:
            shape = [evaluate(size, words) for size in described.sizes]
            outputs.append(_garbage(shape, getattr(torch, kind)))
    setting = Setting(plugin.element(dtypes, attributes), gpu, attributes, words)
    plans = plugin.plans(setting)
    plan = plans[min(tactic, len(plans)) - 1]
    grid = tuple(evaluate(size, words) for size in plugin.grid(plan))
    scalars = [evaluate(size, words) for size in plugin.scalars.values()]
    assert all(isinstance(size, int) for size in (*grid, *scalars))
    first = [tuple(inputs)] if takes_tuple(plugin, "inputs") else inputs
    last = [tuple(outputs)] if takes_tuple(plugin, "outputs") else outputs
    options = {"num_warps": plan.warps, "num_stages": plan.stages}
    plugin.kernel[grid](*first, *scalars, *last, plan, **options)
    return outputs


def _check_shapes(plugin: Plugin, inputs: Sequence[Tensor], words: Given) -> None:
    """A word has one meaning: inputs that share it have the same size there."""
    for tensor, described in zip(inputs, plugin.inputs, strict=True):
        if described.sizes is not None:
            wanted = [evaluate(size, words) for size in described.sizes]
            assert list(tensor.shape) == wanted, (plugin.name, described, tensor.shape, wanted)


def _garbage(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return torch.full(tuple(shape), torch.nan, dtype=dtype)
    return torch.full(tuple(shape), -(1 << 20), dtype=dtype)


def _attributes(plugin: Plugin, node: NodeProto) -> dict[str, Any]:
    """The node's attributes that are the plugin's, each of the type it declares."""
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return {name: kind(given[name]) for name, kind in plugin.attributes.items()}


def run_chain(
    nodes: Sequence[bytes], tensors: dict[str, Tensor], gpu: Gpu, tactic: int = 1
) -> dict[str, Tensor]:
    """Every tensor of a chain by name, given its inputs; a pool is updated in place."""
    for content in nodes:
        node = NodeProto.FromString(content)
        plugin = PLUGINS[node.op_type]
        inputs = [tensors[name] for name in node.input]
        found = run_plugin(plugin, inputs, _attributes(plugin, node), gpu, tactic)
        tensors.update(zip(node.output, found, strict=True))
    return tensors


def _operator(name: str, gpu: Gpu) -> type[OpRun]:
    """The plugin as an operator of ONNX's reference evaluator."""
    plugin = PLUGINS[name]

    def run(self: OpRun, *given: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        inputs = [torch.from_numpy(np.ascontiguousarray(one)) for one in given]
        chosen = {key: attributes[key] for key in plugin.attributes}
        return tuple(one.numpy() for one in run_plugin(plugin, inputs, chosen, gpu))

    return type(name, (OpRun,), {"op_domain": DOMAIN, "_run": run})


_SESSIONS: dict[str, ReferenceEvaluator] = {}


def run_model(path: str, given: dict[str, np.ndarray], gpu: Gpu) -> dict[str, np.ndarray]:
    """Every output of a rewritten graph, node by node; pools among `given` are updated in place."""
    if path not in _SESSIONS:
        operators = [_operator(name, gpu) for name in PLUGINS]
        _SESSIONS[path] = ReferenceEvaluator(onnx.load(path), new_ops=operators)
    session = _SESSIONS[path]
    return dict(zip(session.output_names, session.run(None, given), strict=True))
