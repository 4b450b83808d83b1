"""Runs an ONNX engine's graphs in onnxruntime on the CPU: right, and slow.

The graphs return whole pools, which are copied back every step, and run their ops' bodies of
standard ops. It proves the graphs that TensorRT gets, and serves small models anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnxruntime
import torch
from safetensors import safe_open
from torch import Tensor

from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.device.checks import first_line
from triton_backend.device.executor import Tensors
from triton_backend.runner import RunnerOptions

_WEIGHTS = "weights.safetensors"
_FOLDER = "session.model_external_initializers_file_folder_path"


class OnnxExecutor:
    """Owns a session of each graph.

    `graphs` replaces the engine's own by others over the same weights.

    Raises:
        EngineError: onnxruntime cannot run the engine.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        directory: Path,
        contract: EngineContract,
        threads: int = 0,
        graphs: Mapping[str, bytes] | None = None,
    ) -> None:
        check_engine(directory, contract)
        self._directory = directory
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.add_session_config_entry(_FOLDER, str(directory))
        paths = {name: str(directory / f"{name}.onnx") for name in bindings.FUNCTIONS}
        sources = graphs or paths
        self._sessions = {name: _open(sources[name], paths[name], options) for name in sources}

    @property
    def embedding(self) -> Tensor:
        """The token table, read anew."""
        with safe_open(self._directory / _WEIGHTS, framework="pt") as stored:
            name = next(name for name in stored.keys() if name.endswith("embed_tokens.weight"))
            table: Tensor = stored.get_tensor(name)
        return table

    def run(self, function: str, inputs: Mapping[str, Tensor]) -> Tensors:
        """Every output but the pools, which are copied back into those given."""
        session = self._sessions[function]
        names = [value.name for value in session.get_outputs()]
        given = {name: values.numpy() for name, values in inputs.items()}
        found = session.run(names, given)
        outputs = {name: torch.from_numpy(v) for name, v in zip(names, found, strict=True)}
        for name in names:
            pool = bindings.pool_of(name)
            if pool is not None:
                inputs[pool].copy_(outputs.pop(name))
        return outputs


def open_executor(
    directory: Path, contract: EngineContract, options: RunnerOptions
) -> OnnxExecutor:
    """The executor of an `onnx` engine."""
    return OnnxExecutor(directory, contract, options.threads)


def check_engine(directory: Path, contract: EngineContract) -> None:
    """Refuses what onnxruntime cannot do on a CPU, before it says so in its own words.

    Raises:
        EngineError: naming the field and what to do.
    """
    if contract.dtype != "float32":
        raise EngineError(
            f"engine {directory}: dtype is {contract.dtype}, onnxruntime computes this graph in "
            "float32 alone on a CPU; rebuild it with `--dtype float32`, or serve it with "
            "`--target cpu`."
        )
    if not (directory / _WEIGHTS).is_file():
        raise EngineError(
            f"engine {directory}: {_WEIGHTS} is not there, it was built with --weightless; rebuild "
            "it without, to serve it."
        )


def _open(
    source: str | bytes, path: str, options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError(
            f"{path} does not load in onnxruntime {onnxruntime.__version__} "
            f"({first_line(error)}); rebuild the engine."
        ) from error
