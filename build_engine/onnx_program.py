"""Turns `Step` and both heads into ONNX graphs whose `dg` ops are nodes; knows no weights' values.

Weights are placeholders of no memory here: the graph only learns their names and shapes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import onnx_ir as ir
import torch
from onnx.defs import OpSchema
from onnxscript import OnnxFunction
from onnxscript import opset23 as op
from onnxscript.values import Op
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument

from build_engine.export import FlatStep, export_denoise, export_head, export_step
from build_engine.job import Job
from build_engine.model import DenoiseHead, Head
from plugins import loader
from plugins.onnx_domain import DOMAIN, OPSET, VERSION, dg
from plugins.onnx_functions import OPS, op_function

_Module = TypeVar("_Module", bound=nn.Module)
_SPACE = "dg_functional"
_TYPES = ("tensor(float)", "tensor(bfloat16)", "tensor(int64)", "tensor(int32)")


class OnnxStep(FlatStep):
    """`FlatStep` whose pools come out again, as ONNX knows no update in place."""

    def forward(self, *inputs: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Hidden states and the pools, in the order of the layers."""
        return super().forward(*inputs), *inputs[-1]


def step_graph(job: Job) -> ir.Model:
    """The step function, pools as inputs and outputs."""
    model = _placeholders(OnnxStep(job.config), job.torch_dtype)
    program = export_step(model, job.limits, job.page_size, job.torch_dtype)
    _return_written_pools(program)
    return _to_onnx(program)


def head_graph(job: Job) -> ir.Model:
    """The read head."""
    model = _placeholders(Head(job.config), job.torch_dtype)
    return _to_onnx(export_head(model, job.config.geometry.hidden_size, job.torch_dtype))


def denoise_graph(job: Job) -> ir.Model:
    """The head of a denoising step."""
    model = _placeholders(DenoiseHead(job.config), job.torch_dtype)
    return _to_onnx(export_denoise(model, job.config.geometry.hidden_size, job.torch_dtype))


def _placeholders(model: _Module, dtype: torch.dtype) -> _Module:
    loader.load()
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            assert parameter is not None
            empty = torch.zeros((), dtype=dtype).expand(parameter.shape)
            module.register_parameter(name, nn.Parameter(empty, requires_grad=False))
    return model


def _functional_attention() -> Any:
    """The attention op as one that returns the pool it would write; traced, never run."""
    name = "mixed_mask_paged_attention"
    if not hasattr(getattr(torch.ops, _SPACE), name):
        schema = str(torch.ops.dg.mixed_mask_paged_attention.default._schema)
        arguments = schema[schema.index("(") : schema.index(" ->")].replace("Tensor(a!)", "Tensor")
        torch.library.define(f"{_SPACE}::{name}", f"{arguments} -> (Tensor, Tensor)")
        torch.library.register_fake(
            f"{_SPACE}::{name}", lambda *given: (torch.empty_like(given[0]), given[3].clone())
        )
    return getattr(torch.ops, _SPACE).mixed_mask_paged_attention.default


def _return_written_pools(program: ExportedProgram) -> None:
    """Replace every attention by its functional form, and the returned pools by what it wrote."""
    graph, written = program.graph_module.graph, {}
    for node in list(graph.nodes):
        if node.target is torch.ops.dg.mixed_mask_paged_attention.default:
            pool = node.args[3]
            with graph.inserting_before(node):
                both = graph.call_function(_functional_attention(), node.args)
                found = graph.call_function(operator.getitem, (both, 0))
                written[pool] = graph.call_function(operator.getitem, (both, 1))
            both.meta["val"] = (node.meta["val"], pool.meta["val"])
            found.meta["val"], written[pool].meta["val"] = both.meta["val"]
            node.replace_all_uses_with(found)
            graph.erase_node(node)
    output = graph.output_node()
    results: tuple[fx.Node, ...] = output.args[0]
    output.args = (tuple(written.get(result, result) for result in results),)
    specs = program.graph_signature.output_specs
    for n, result in enumerate(output.args[0]):
        specs[n] = dataclasses.replace(specs[n], arg=TensorArgument(result.name))
    graph.lint()
    program.graph_module.recompile()


def _linear(x: Any, weight: Any, out_features: int) -> Any:  # noqa: ARG001
    return op.MatMul(x, op.Transpose(weight, perm=[1, 0]))


def _as_node(function: OnnxFunction) -> Callable[..., Any]:
    """A translation to one node of the function's name; its body is added to the model later."""
    proto = function.to_function_proto()
    kinds = {"window": OpSchema.AttrType.INT}
    schema = OpSchema(
        proto.name,
        DOMAIN,
        VERSION,
        inputs=[OpSchema.FormalParameter(name, f"T{name}") for name in proto.input],
        outputs=[OpSchema.FormalParameter(name, f"R{name}") for name in proto.output],
        type_constraints=[
            (name, list(_TYPES), "")
            for name in [*(f"T{n}" for n in proto.input), *(f"R{n}" for n in proto.output)]
        ],
        attributes=[
            OpSchema.Attribute(name, kinds.get(name, OpSchema.AttrType.FLOAT), "")
            for name in proto.attribute
        ],
    )
    node, inputs, attributes = Op(dg, proto.name, schema), len(proto.input), list(proto.attribute)

    def translate(*arguments: Any) -> Any:
        return node(*arguments[:inputs], **dict(zip(attributes, arguments[inputs:], strict=True)))

    return translate


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    table = {getattr(torch.ops.dg, name).default: _as_node(op_function(name)) for name in OPS}
    table[_functional_attention()] = table[torch.ops.dg.mixed_mask_paged_attention.default]
    table[torch.ops.dg.linear.default] = _linear
    return table


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on optional packages and its own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(level)


def _to_onnx(program: ExportedProgram) -> ir.Model:
    with _quiet():
        made = torch.onnx.export(
            program,
            dynamo=True,
            custom_translation_table=_translations(),
            opset_version=OPSET,
            optimize=False,
            verbose=False,
        )
    assert made is not None
    return made.model
