"""Runs one `dg` ONNX function alone in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

from plugins.onnx_domain import DOMAIN, OPSET, VERSION
from plugins.onnx_functions import functions

_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
}
_OUTPUTS = {"f": TensorProto.FLOAT, "i": TensorProto.INT32, "l": TensorProto.INT64}


def run(name: str, inputs: dict[str, Tensor], outputs: str, **attributes: float) -> list[Tensor]:
    """Outputs of one call, given its inputs by name; `outputs` is "f2 i1": types and ranks."""
    names = [f"out{n}" for n in range(len(outputs.split()))]
    node = helper.make_node(name, list(inputs), names, domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(key, _TYPES[value.dtype], [None] * value.dim())
            for key, value in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, _OUTPUTS[kind[0]], [None] * int(kind[1]))
            for name, kind in zip(names, outputs.split(), strict=True)
        ],
    )
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(
        graph, opset_imports=imports, functions=list(functions().values()), ir_version=10
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given = {key: value.numpy() for key, value in inputs.items()}
    return [torch.from_numpy(np.asarray(value)) for value in session.run(None, given)]
