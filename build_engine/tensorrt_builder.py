"""Builds one TensorRT plan from an ONNX file, without the checkpoint's weights, and checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engine.bindings import Binding, Range, Signature, pool_of
from build_engine.errors import EngineError
from build_engine.tensorrt_api import Api, Log

Profile = Mapping[str, Range]


@dataclass(frozen=True)
class Order:
    """One plan: its graph's file, what goes in and out, and the weights it is to be given later."""

    model: Path
    signature: Signature
    profiles: Sequence[Profile]
    weights: Sequence[str]
    dtype: str
    report: Callable[[str], None]

    @property
    def name(self) -> str:
        return self.model.stem


@dataclass(frozen=True)
class Plan:
    """What a build leaves: the plan, the inspector's report as JSON, timings for the next build."""

    content: bytes
    layers: str
    timings: bytes


def build_plan(api: Api, order: Order, timings: bytes) -> Plan:
    """The plan of an ONNX model.

    Raises:
        EngineError: the parser or the builder refuses the graph, or the plan is not what was asked.
    """
    log = Log()
    logger = api.logger(log)
    builder = api.trt.Builder(logger)
    network = _parsed(api, builder, logger, order)
    config = api.config(builder, order.dtype)
    for profile in order.profiles:
        config.add_optimization_profile(_profile(builder, order.signature.inputs, profile))
    api.use_timing_cache(config, timings)
    progress = api.progress(order.name, order.report)
    config.progress_monitor = progress
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(f"TensorRT {api.version} does not build {order.name}: {log.first}.")
    kept = bytes(config.get_timing_cache().serialize())
    return Plan(bytes(plan), _inspected(api, logger, log, bytes(plan), order), kept)


def _parsed(api: Api, builder: Any, logger: Any, order: Order) -> Any:
    """The network, with every weight of the checkpoint marked as one that is refitted."""
    network = api.network(builder)
    parser = api.trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(order.model)):
        why = parser.get_error(0).desc() if parser.num_errors else "no reason given"
        reason = why.strip().rstrip(".")
        raise EngineError(f"TensorRT {api.version} does not read {order.model.name}: {reason}.")
    _check_bindings(api, network, order)
    lost = [name for name in order.weights if not network.mark_weights_refittable(name)]
    if lost:
        raise EngineError(
            f"TensorRT {api.version} does not keep the weights {', '.join(lost)} of {order.name} "
            "under their names, so the plan could not be given them."
        )
    return network


def _check_bindings(api: Api, network: Any, order: Order) -> None:
    found = [network.get_input(n) for n in range(network.num_inputs)]
    found += [network.get_output(n) for n in range(network.num_outputs)]
    known = {tensor.name: tensor for tensor in found}
    wrong = [
        binding.name
        for bindings, unknown in ((order.signature.inputs, ()), (order.signature.outputs, (-1,)))
        for binding in bindings
        if not _same(api, known.pop(binding.name, None), binding, unknown)
    ]
    wrong += known
    if wrong:
        raise EngineError(
            f"{order.name}: TensorRT {api.version} has other inputs or outputs than the contract, "
            f"{', '.join(wrong)} first of all."
        )


def _same(api: Api, tensor: Any, binding: Binding, unknown: tuple[int, ...]) -> bool:
    """Whether a tensor is what the contract says; a size may also be one of `unknown`, as a
    plugin's fixed ones are if TensorRT does not work out what they follow from."""
    if tensor is None or api.dtypes.get(tensor.dtype) != binding.dtype:
        return False
    sizes = zip(tensor.shape, binding.shape, strict=False)
    return len(tensor.shape) == len(binding.shape) and all(
        size in (wish if isinstance(wish, int) else -1, *unknown) for size, wish in sizes
    )


def _profile(builder: Any, inputs: Sequence[Binding], sizes: Profile) -> Any:
    profile = builder.create_optimization_profile()
    for binding in inputs:
        ranges = [Range(s, s, s) if isinstance(s, int) else sizes[s] for s in binding.shape]
        least, usual, most = zip(*((r.least, r.usual, r.most) for r in ranges), strict=True)
        profile.set_shape(binding.name, least, usual, most)
    return profile


def _inspected(api: Api, logger: Any, log: Log, plan: bytes, order: Order) -> str:
    """The layers of a plan, once it is known to be the one that was asked for."""
    engine = api.trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise EngineError(
            f"TensorRT {api.version} does not load the {order.name} it built: {log.first}."
        )
    for binding in order.signature.outputs:
        pool, told = pool_of(binding.name), api.aliased_input(engine, binding.name)
        if pool is not None and told not in (None, pool):
            raise EngineError(
                f"{order.name}: TensorRT {api.version} updates {told} instead of {pool}."
            )
    # A weight that was folded into others is in the plan and is not asked for again.
    odd = sorted(set(api.trt.Refitter(engine, logger).get_all_weights()) - set(order.weights))
    if odd:
        raise EngineError(
            f"{order.name}: TensorRT {api.version} takes other weights than the checkpoint's: "
            f"{', '.join(odd)}."
        )
    return api.layers(engine)
