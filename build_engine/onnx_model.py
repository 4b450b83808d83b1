"""Finishes an exported graph as a model file: names, function bodies, weights by reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import FunctionProto
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript import optimizer

from build_engine.bindings import Signature
from build_engine.errors import EngineError
from build_engine.onnx_weights import Place
from plugins.onnx_domain import DOMAIN
from plugins.onnx_functions import functions

_DTYPES = {"float32": ir.DataType.FLOAT, "bfloat16": ir.DataType.BFLOAT16}


def finish(
    model: ir.Model, signature: Signature, weights: Mapping[str, Place], dtype: str
) -> onnx.ModelProto:
    """The model of an exported graph, its inputs, outputs, sizes and weights named for good."""
    _simplify(model, weights)
    _name_bindings(model.graph, signature)
    _refer_to_weights(model.graph, weights, _DTYPES[dtype])
    ClearMetadataAndDocStringPass()(model)
    model.producer_name, model.producer_version = "diffusiongemma-triton", ""
    model.graph.name = "diffusiongemma"
    proto = ir.to_proto(model)
    proto.functions.extend(_needed(node.op_type for node in model.graph if node.domain == DOMAIN))
    return proto


def _simplify(model: ir.Model, weights: Mapping[str, Place]) -> None:
    """Optimise with the weights as inputs: their values are not known here, so none may count."""
    graph = model.graph
    held = [graph.initializers.pop(name) for name in list(graph.initializers) if name in weights]
    for value in held:
        value.const_value = None
    graph.inputs.extend(held)
    optimizer.optimize_ir(model, inline=False)
    del graph.inputs[len(graph.inputs) - len(held) :]
    graph.initializers.update((str(value.name), value) for value in held)


def _name_bindings(graph: ir.Graph, signature: Signature) -> None:
    sizes: dict[str, str] = {}
    for value, binding in zip(graph.inputs, signature.inputs, strict=True):
        value.name = binding.name
        assert value.shape is not None
        for found, size in zip(value.shape, binding.shape, strict=True):
            if isinstance(size, str):
                sizes[str(found)] = size
            elif found != size:
                raise EngineError(f"input {binding.name} was exported as {value.shape}.")
    for value, binding in zip(graph.outputs, signature.outputs, strict=True):
        value.name = binding.name
    for value in _values(graph):
        if value.shape is not None:
            value.shape = ir.Shape(
                [size if isinstance(size, int) else sizes.get(str(size)) for size in value.shape]
            )


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _refer_to_weights(graph: ir.Graph, weights: Mapping[str, Place], dtype: ir.DataType) -> None:
    for name in list(graph.initializers):
        if name not in weights:
            continue
        place, value = weights[name], graph.initializers.pop(name)
        value.name = place.name
        value.const_value = ir.ExternalTensor(
            place.file,
            place.offset,
            place.length,
            dtype,
            shape=ir.Shape(place.shape),
            name=place.name,
        )
        graph.initializers[place.name] = value


def _needed(ops: Iterable[str]) -> list[FunctionProto]:
    """The functions of these ops and of their parts."""
    known, wanted, found = functions(), list(dict.fromkeys(ops)), {}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = known[name]
            wanted += [node.op_type for node in known[name].node if node.domain == DOMAIN]
    return [found[name] for name in sorted(found)]


def save(model: onnx.ModelProto, path: Path, weightless: bool = False) -> None:
    """Write a model and have ONNX's own checker read it back.

    Raises:
        EngineError: the checker finds a fault, which is this builder's.
    """
    path.write_bytes(model.SerializeToString(deterministic=True))
    try:
        onnx.checker.check_model(_bare(model) if weightless else str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise EngineError(f"{path.name} is not valid ONNX: {error}.") from error


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs for its weights: the checker looks for files that are elsewhere."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in list(bare.graph.initializer):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            shape = list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
            bare.graph.input.append(value)
            bare.graph.initializer.remove(tensor)
    return bare
