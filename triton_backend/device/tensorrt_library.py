"""TensorRT or TensorRT-RTX, whichever a target needs; the only file here that imports them.

Absorbs what differs between 10.14, 11.x and RTX: the module's name, how contexts are made and
given memory, who captures CUDA graphs, where compiled kernels are kept.
"""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.device.checks import check_version

_MODULES = {
    bindings.TENSORRT: ("tensorrt", "tensorrt_bindings"),
    bindings.TENSORRT_RTX: ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
_TITLES = {bindings.TENSORRT: "TensorRT", bindings.TENSORRT_RTX: "TensorRT-RTX"}
_EXTRAS = {bindings.TENSORRT: "tensorrt", bindings.TENSORRT_RTX: "tensorrt-rtx"}


@dataclass(frozen=True)
class Library:
    """One of the two, imported; `log` keeps its latest errors."""

    target: str
    api: Any
    log: Any = field(repr=False)

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        return _TITLES[self.target]

    @property
    def version(self) -> str:
        """The release that is installed."""
        return str(self.api.__version__)

    @property
    def captures(self) -> bool:
        """Whether CUDA graphs are ours to capture; RTX does it by itself."""
        return self.target == bindings.TENSORRT

    def why(self) -> str:
        """The first error since the last call."""
        errors, self.log.errors[:] = list(self.log.errors), []
        return errors[0].rstrip(".") if errors else "no reason given"


def load_library(contract: EngineContract) -> Library:
    """The library that an engine's plans are for, in the release that built them.

    Raises:
        EngineError: it is not installed, or in another release.
    """
    target = contract.target
    api = _import(target)
    key = target.replace("-", "_")
    check_version(contract, key, _TITLES[target], str(api.__version__))
    return Library(target, api, _make_log(api))


def _import(target: str) -> Any:
    why = ""
    for name in _MODULES[target]:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            why = why or str(error)
    raise EngineError(
        f"serving a {target} engine needs {_TITLES[target]}, which does not import here ({why}); "
        f"install it with `pip install 'diffusiongemma-triton[{_EXTRAS[target]}]'` or serve in "
        "NVIDIA's container."
    )


def _make_log(api: Any) -> Any:
    class Log(api.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (api.ILogger.Severity.ERROR, api.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(" ".join(message.split()))

    return Log()


def deserialise(library: Library, runtime: Any, path: Path) -> Any:
    """The engine of a plan file, its weights on the GPU unless they were stripped.

    Raises:
        EngineError: the library refuses the plan.
    """
    with path.open("rb") as file:
        plan = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise EngineError(
            f"{path} does not load in {library.title} {library.version} ({library.why()}); rebuild "
            "the engine for this machine."
        )
    return engine


def make_runtime(library: Library) -> Any:
    """What deserialises plans.

    Raises:
        EngineError: there is no GPU or no driver that the library can use.
    """
    try:
        return library.api.Runtime(library.log)
    except (RuntimeError, TypeError) as error:
        raise EngineError(
            f"{library.title} {library.version} does not start here ({library.why()}); it needs an "
            "NVIDIA GPU and its driver."
        ) from error


def tensors(library: Library, engine: Any) -> dict[str, tuple[bool, str]]:
    """Every input and output of an engine: whether it goes in, and its dtype by our name."""
    api = library.api
    names = {
        api.DataType.FLOAT: "float32",
        api.DataType.BF16: "bfloat16",
        api.DataType.INT32: "int32",
        api.DataType.INT64: "int64",
    }
    found = {}
    for n in range(engine.num_io_tensors):
        name = engine.get_tensor_name(n)
        goes_in = engine.get_tensor_mode(name) == api.TensorIOMode.INPUT
        dtype = engine.get_tensor_dtype(name)
        found[name] = (goes_in, names.get(dtype, str(dtype)))
    return found


def profiles(engine: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Least and largest shape of every input in every optimisation profile."""
    found = []
    for n in range(engine.num_optimization_profiles):
        shapes = {name: engine.get_tensor_profile_shape(name, n) for name in inputs}
        found.append({name: (tuple(s[0]), tuple(s[-1])) for name, s in shapes.items()})
    return found


def aliased_input(engine: Any, output: str) -> str | None:
    """The input that an output shares its memory with; None where the library does not tell.

    10.14 cannot be asked, 11.2 tells of its own layers and not of plugins.
    """
    ask = getattr(engine, "get_aliased_input_tensor", None)
    found: str | None = ask(output) if ask else None
    return found or None


def workspace_bytes(engine: Any) -> int:
    """Device memory that one context of the engine needs beside its weights, in any profile."""
    return int(engine.device_memory_size_v2)


def make_context(
    library: Library, engine: Any, memory: tuple[int, int], runtime_config: Any
) -> Any:
    """A context, over memory (address, bytes) of ours, or of the library's own by its config.

    Raises:
        EngineError: the GPU has no room for it.
    """
    if runtime_config is not None:
        context = engine.create_execution_context(runtime_config)
    else:
        strategy = library.api.ExecutionContextAllocationStrategy.USER_MANAGED
        context = engine.create_execution_context(strategy)
        if context is not None:
            context.set_device_memory(*memory)
    if context is None:
        raise EngineError(
            f"{library.title} has no room for an execution context ({library.why()}); lower "
            "kv_cache_pages or kv_cache_bytes, or build with a lower --max-step-tokens."
        )
    return context


def make_runtime_config(
    library: Library, engine: Any, cache: Path | None, cuda_graphs: bool
) -> Any:
    """TensorRT-RTX's settings: own graphs, kernels from the cache; None on TensorRT."""
    if library.captures:
        return None
    config = engine.create_runtime_config()
    if cuda_graphs:
        config.cuda_graph_strategy = library.api.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    if cache is not None:
        kernels = config.create_runtime_cache()
        if cache.is_file():
            # A cache of another driver or GPU is refused, and kernels are compiled anew.
            kernels.deserialize(cache.read_bytes())
        config.set_runtime_cache(kernels)
    return config


def save_kernels(config: Any, cache: Path) -> None:
    """Writes the kernels that were compiled so far, whole or not at all."""
    kernels = config.get_runtime_cache()
    if kernels is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        fresh = cache.with_suffix(".new")
        fresh.write_bytes(bytes(kernels.serialize()))
        fresh.replace(cache)
