"""The ONNX functions of domain `dg` by name, ready to be put into a model; knows no model."""

import functools

from onnx import FunctionProto
from onnxscript import OnnxFunction

from plugins import onnx_attention, onnx_heads, onnx_random

_MODULES = (onnx_attention, onnx_heads, onnx_random)
OPS = ("mixed_mask_paged_attention", "routed_experts", "label_head", "denoise_head")
"""The functions that stand for ops; the rest are their parts."""


def op_function(name: str) -> OnnxFunction:
    """The function that stands for an op."""
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


@functools.cache
def functions() -> dict[str, FunctionProto]:
    """Every function, parts included, in an order of names."""
    found = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if isinstance(value, OnnxFunction):
                found[name] = value.to_function_proto()
    return dict(sorted(found.items()))
