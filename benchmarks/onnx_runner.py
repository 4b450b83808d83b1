"""Runs packed steps on an ONNX engine with onnxruntime, as the other runners do; for proofs only.

onnxruntime computes fp32 here and copies the pools every step: right, and not fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from benchmarks.session import Session
from build_engine import bindings
from build_engine.contract import EngineContract
from build_engine.rtx_graph import plain, rewrite_step, step_signature
from plugins.spec import ROW_COUNT
from triton_backend.pack import LEAST, PackedStep
from triton_backend.runner import DenoiseOutput, HeadOutput, StepOutput

Arrays = dict[str, NDArray[Any]]
_FIELDS = (
    *("token_ids", "positions", "phases", "slots_sliding", "slots_full", "segments"),
    *("table_sliding", "table_full", "soft_index", "output_rows"),
)


class OnnxRunner:
    """Owns the sessions of the three graphs and the KV pools of one ONNX engine."""

    def __init__(self, directory: Path, contract: EngineContract) -> None:
        self.directory, self.contract = directory, contract
        self._sessions = {name: self._open(name) for name in bindings.FUNCTIONS}
        self.pools: Arrays = {}
        stored = load_file(str(directory / "weights.safetensors"))
        self.embedding = next(
            stored[name] for name in stored if name.endswith("embed_tokens.weight")
        )

    def _open(self, name: str) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        folder = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(folder, str(self.directory))
        model = self.model(name).SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def model(self, name: str) -> onnx.ModelProto:
        """The graph that is run."""
        return onnx.load(self.directory / f"{name}.onnx", load_external_data=False)

    def call(self, name: str, given: Arrays) -> Arrays:
        """Every output of one function by name."""
        session = self._sessions[name]
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, given), strict=True))

    def create_pools(self, pages: int) -> None:
        """Zeroed pools, one a layer."""
        geometry, page = self.contract.geometry, self.contract.page_size
        self.pools = {
            bindings.pool_name(n): np.zeros(
                (max(pages, 2), 2, page, geometry.kv_heads(n), geometry.head_dim(n)), np.float32
            )
            for n in range(geometry.num_layers)
        }

    def step_inputs(self, packed: PackedStep) -> Arrays:
        """Everything that goes into the step."""
        zeros = np.zeros((LEAST, self.contract.geometry.hidden_size), np.float32)
        soft = np.concatenate([zeros, *map(np.asarray, packed.soft_parts)])
        return {**{name: getattr(packed, name) for name in _FIELDS}, "soft": soft, **self.pools}

    def hidden(self, packed: PackedStep) -> torch.Tensor:
        """Normed hidden states [R, H] of the step's output rows; replaces the pools."""
        found = self.call(bindings.STEP, self.step_inputs(packed))
        for n in range(self.contract.geometry.num_layers):
            self.pools[bindings.pool_name(n)] = found[bindings.new_pool_name(n)]
        return torch.from_numpy(found["hidden"])

    def heads(self, hidden: torch.Tensor, packed: PackedStep) -> StepOutput:
        """Both heads over the step's hidden rows, read rows first."""
        reads, rows = len(packed.label_ids), hidden.numpy()
        read, drawn = None, None
        if reads:
            given = {"hidden": rows[:reads], "label_ids": packed.label_ids}
            read = HeadOutput(**self.call(bindings.HEAD, given))
        if len(packed.temperature):
            given = {"hidden": rows[reads:], "temperature": packed.temperature}
            drawn = DenoiseOutput(**self.call(bindings.DENOISE, {**given, "draws": packed.draws}))
        return StepOutput(read, drawn)

    def run(self, packed: PackedStep) -> StepOutput:
        """One execution."""
        return self.heads(self.hidden(packed), packed)


class PlainRunner(OnnxRunner):
    """The same engine by the graphs that TensorRT-RTX gets: standard ops, pools that are read."""

    def model(self, name: str) -> onnx.ModelProto:
        """The graph that is run."""
        model = super().model(name)
        if name != bindings.STEP:
            return plain(model)
        return rewrite_step(model, step_signature(bindings.signatures(self.contract)[name]))

    def hidden(self, packed: PackedStep) -> torch.Tensor:
        """Normed hidden states [R, H]; stores the new rows in the pools."""
        lanes = np.arange(max(int(packed.segments[:, ROW_COUNT].max()), 1))
        found = self.call(bindings.STEP, {**self.step_inputs(packed), "lanes": lanes})
        geometry, page = self.contract.geometry, self.contract.page_size
        for n in range(geometry.num_layers):
            slots = packed.slots_sliding if geometry.is_sliding(n) else packed.slots_full
            kept = slots >= 0
            pool, rows = self.pools[bindings.pool_name(n)], found[bindings.new_rows_name(n)]
            pool[slots[kept] // page, :, slots[kept] % page] = rows[kept]
        return torch.from_numpy(found["hidden"])


class OnnxSession(Session):
    """A session over onnxruntime."""

    def _runner(self, engine: Path, threads: int) -> OnnxRunner:  # type: ignore[override]  # noqa: ARG002
        return OnnxRunner(engine, self.contract)


class PlainSession(Session):
    """A session over onnxruntime and the graphs for TensorRT-RTX."""

    def _runner(self, engine: Path, threads: int) -> PlainRunner:  # type: ignore[override]  # noqa: ARG002
        return PlainRunner(engine, self.contract)
