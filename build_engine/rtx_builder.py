"""Builds one TensorRT-RTX plan from an ONNX file on any machine; the only file that names that API.

No GPU is asked: kernels are compiled at run time, for the compute capabilities a plan was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorrt_rtx_bindings as trt

from build_engine.bindings import Binding, Range, Signature
from build_engine.errors import EngineError
from build_engine.tensorrt_api import Api, Log

VERSION: str = trt.__version__
COMPUTE_CAPABILITIES = {
    f"{name[2:-1]}.{name[-1]}": value
    for name, value in trt.ComputeCapability.__members__.items()
    if name.startswith("SM")
}
_API = Api(trt, None)


def build_plan(
    model: Path,
    signature: Signature,
    sizes: Mapping[str, Range],
    capabilities: Sequence[str],
    report: Callable[[str], None],
) -> bytes:
    """The plan of an ONNX model, its inputs and outputs those of the signature.

    Raises:
        EngineError: the parser or the builder refuses the graph, or a binding differs.
    """
    log = Log()
    logger = _API.logger(log)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        why = parser.get_error(0).desc() if parser.num_errors else "no reason given"
        raise EngineError(f"TensorRT-RTX {VERSION} does not read {model.name}: {why}.")
    _check_bindings(network, signature, model.stem)
    _allow_decomposition(network)
    config = builder.create_builder_config()
    config.add_optimization_profile(_profile(builder, signature.inputs, sizes))
    config.num_compute_capabilities = len(capabilities)
    for n, capability in enumerate(capabilities):
        config.set_compute_capability(COMPUTE_CAPABILITIES[capability], n)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    progress = _API.progress(model.stem, report)
    config.progress_monitor = progress
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(f"TensorRT-RTX {VERSION} does not build {model.stem}: {log.first}.")
    return bytes(plan)


def _check_bindings(network: Any, signature: Signature, name: str) -> None:
    found = [network.get_input(n) for n in range(network.num_inputs)]
    found += [network.get_output(n) for n in range(network.num_outputs)]
    wanted = [*signature.inputs, *signature.outputs]
    for tensor, binding in zip(found, wanted, strict=True):
        dtype = _API.dtypes.get(tensor.dtype, str(tensor.dtype))
        sizes = list(zip(tensor.shape, binding.shape, strict=False))
        same = len(tensor.shape) == len(binding.shape) and all(
            size == wish if isinstance(wish, int) else size == -1 for size, wish in sizes
        )
        if (tensor.name, dtype) != (binding.name, binding.dtype) or not same:
            raise EngineError(
                f"{name}: TensorRT-RTX has {tensor.name} {dtype} {list(tensor.shape)} where the "
                f"contract has {binding.name} {binding.dtype} {list(binding.shape)}."
            )


def _allow_decomposition(network: Any) -> None:
    """Attention without a fused kernel, as in fp32 or of heads of 512, is built from plain ops."""
    for n in range(network.num_layers):
        layer = network.get_layer(n)
        if layer.type == trt.LayerType.ATTENTION_OUTPUT:
            # The bindings hand layers out as their base class.
            layer.__class__ = trt.IAttentionOutputLayer
            layer.attention.decomposable = True


def _profile(builder: Any, inputs: Sequence[Binding], sizes: Mapping[str, Range]) -> Any:
    profile = builder.create_optimization_profile()
    for binding in inputs:
        ranges = [Range(s, s, s) if isinstance(s, int) else sizes[s] for s in binding.shape]
        profile.set_shape(
            binding.name,
            [size.least for size in ranges],
            [size.usual for size in ranges],
            [size.most for size in ranges],
        )
    return profile
