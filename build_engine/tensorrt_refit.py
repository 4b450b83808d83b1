"""Gives a TensorRT engine that was just loaded its weights, by the checkpoint's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from build_engine import tensorrt_api
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from build_engine.tensorrt_api import Api, Log
from build_engine.tensorrt_weights import Stored, read_stored, weight_files


def refit_engine(engine: Any, directory: Path, contract: EngineContract) -> None:
    """Fills every weight of an engine from its directory, or from the checkpoint it points to.

    `engine` is a deserialised `tensorrt.ICudaEngine` of one of the directory's plans.

    Raises:
        EngineError: a weight is missing, of another size or type, or TensorRT refuses it.
    """
    api = tensorrt_api.load()
    stored = read_stored(weight_files(Path(directory), contract))
    refit(api, engine, stored)


def refit(api: Api, engine: Any, stored: dict[str, Stored]) -> None:
    """The same from tensors that stay mapped until it is done."""
    log = Log()
    refitter = api.trt.Refitter(engine, api.logger(log))
    wanted = list(refitter.get_all_weights())
    absent = [name for name in wanted if name not in stored]
    if absent:
        raise EngineError(f"the engine's weights lack {', '.join(absent)}; rebuild the engine.")
    for name in wanted:
        _set(api, refitter, name, stored[name], log)
    missing = list(refitter.get_missing_weights())
    if missing:
        raise EngineError(f"TensorRT {api.version} still lacks {', '.join(missing)}.")
    if not refitter.refit_cuda_engine():
        raise EngineError(f"TensorRT {api.version} does not take the weights: {log.first}.")


def _set(api: Api, refitter: Any, name: str, stored: Stored, log: Log) -> None:
    wanted = refitter.get_weights_prototype(name)
    dtype = api.dtypes.get(wanted.dtype, str(wanted.dtype))
    if (dtype, wanted.size) != (stored.dtype, stored.count):
        raise EngineError(
            f"weight {name} is {stored.count} of {stored.dtype}, the engine wants {wanted.size} of "
            f"{dtype}; rebuild the engine."
        )
    if not refitter.set_named_weights(
        name, api.trt.Weights(wanted.dtype, stored.address, stored.count)
    ):
        raise EngineError(f"TensorRT {api.version} refuses the weight {name}: {log.first}.")
