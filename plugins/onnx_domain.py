"""The ONNX domain of the ops' functions; imports no function of it."""

from onnxscript.values import Opset

DOMAIN, VERSION = "dg", 1
OPSET = 23
"""Of the standard ops, in graphs and in bodies: the first with `Attention`."""

dg = Opset(DOMAIN, VERSION)
FLOAT, INT32, INT64 = 1, 6, 7
"""onnx.TensorProto's numbers of these types."""
