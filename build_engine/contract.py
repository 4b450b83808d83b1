"""What an engine directory promises to the server: geometry, limits, identity and file hashes.

Standard library only, so that deciders can read it without torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build_engine.contract_check import check_values
from build_engine.errors import EngineError

FORMAT_VERSION = 2
CONTRACT_FILE = "config.json"
PROFILE_FILE = "profile.json"
"""What `make profile` adds to an engine; no build writes it, and a rebuild takes it away."""
SLIDING = "sliding_attention"
FULL = "full_attention"
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Geometry:
    """Shape of the model, from the checkpoint's config.json; sizes in elements."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    layer_types: tuple[str, ...]
    sliding_window: int
    sliding_kv_heads: int
    sliding_head_dim: int
    full_kv_heads: int
    full_head_dim: int
    intermediate_size: int
    num_experts: int
    top_k_experts: int
    moe_intermediate_size: int
    canvas_length: int
    softcap: float

    def kv_heads(self, layer: int) -> int:
        """Key/value heads of one layer."""
        return self.sliding_kv_heads if self.is_sliding(layer) else self.full_kv_heads

    def head_dim(self, layer: int) -> int:
        """Width of one attention head of one layer."""
        return self.sliding_head_dim if self.is_sliding(layer) else self.full_head_dim

    def is_sliding(self, layer: int) -> bool:
        """Whether the layer attends through the sliding window."""
        return self.layer_types[layer] == SLIDING

    def window(self, layer: int) -> int:
        """Window of the layer's attention in positions, 0 for full attention."""
        return self.sliding_window if self.is_sliding(layer) else 0


@dataclass(frozen=True)
class Limits:
    """Largest sizes one execution or one request may have."""

    max_step_tokens: int
    max_segments: int
    max_context: int
    max_canvas: int
    max_output_rows: int
    max_labels: int


@dataclass(frozen=True)
class EngineContract:
    """The whole of an engine's `config.json`."""

    target: str
    dtype: str
    page_size: int
    geometry: Geometry
    limits: Limits
    stop_ids: tuple[int, ...]
    pad_id: int
    bos_id: int
    checkpoint: dict[str, Any] = field(default_factory=dict)
    builder: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def kv_page_bytes(self) -> int:
        """Bytes of one KV page over all layers, keys and values together."""
        return self.group_page_bytes(False) + self.group_page_bytes(True)

    @property
    def window(self) -> int:
        """Window of the sliding layers in positions, 0 without any."""
        return max(map(self.geometry.window, range(self.geometry.num_layers)))

    def group_page_bytes(self, sliding: bool) -> int:
        """Bytes of one page over the layers of a KV group, keys and values together."""
        geometry = self.geometry
        layers = (n for n in range(geometry.num_layers) if geometry.is_sliding(n) is sliding)
        per_token = sum(geometry.kv_heads(n) * geometry.head_dim(n) for n in layers)
        return 2 * self.page_size * per_token * DTYPE_BYTES[self.dtype]

    def pool_bytes(self, full_pages: int, sliding_pages: int) -> int:
        """Bytes of the KV pools of both groups."""
        full, sliding = (self.group_page_bytes(sliding) for sliding in (False, True))
        return full_pages * full + sliding_pages * sliding

    def to_json(self) -> str:
        """Stable text form: same contract, same bytes."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _typed(cls: type, values: object, where: str) -> Any:
    if not isinstance(values, dict):
        raise EngineError(f"{where} is {values!r}, it must be a JSON object; rebuild it.")
    known = {entry.name for entry in dataclasses.fields(cls)}
    unknown, missing = sorted(set(values) - known), sorted(known - set(values))
    if unknown or missing:
        raise EngineError(f"{where}: unknown keys {unknown}, missing keys {missing}; rebuild it.")
    return cls(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def parse_contract(values: dict[str, Any], where: str = CONTRACT_FILE) -> EngineContract:
    """Contract from its JSON object.

    Raises:
        EngineError: another format version, or keys that are unknown or missing.
    """
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise EngineError(
            f"{where}: engine format {version}, this release reads format {FORMAT_VERSION}; "
            "rebuild the engine with `python -m build_engine`."
        )
    nested = dict(values)
    nested["geometry"] = _typed(Geometry, values.get("geometry"), f"{where} geometry")
    nested["limits"] = _typed(Limits, values.get("limits"), f"{where} limits")
    contract: EngineContract = _typed(EngineContract, nested, where)
    check_values(values, where)
    return contract


def verify_files(directory: Path, contract: EngineContract) -> None:
    """Compare every file with the hash recorded at build time.

    Raises:
        EngineError: a file is missing or differs.
    """
    for name, expected in contract.files.items():
        path = directory / name
        if not path.is_file():
            raise EngineError(f"engine {directory}: file {name} is missing; rebuild the engine.")
        found = file_sha256(path)
        if found != expected:
            raise EngineError(
                f"engine {directory}: {name} has SHA-256 {found[:12]}..., config.json says "
                f"{expected[:12]}...; the file was changed or is incomplete, rebuild the engine."
            )


def load_contract(directory: str | Path, verify: bool = True) -> EngineContract:
    """Read and check an engine directory's contract.

    Raises:
        EngineError: no such engine, unreadable contract, or (with `verify`) a hash mismatch.
    """
    directory = Path(directory)
    path = directory / CONTRACT_FILE
    if not path.is_file():
        raise EngineError(
            f"no engine at {directory}: {CONTRACT_FILE} not found; build one with "
            "`python -m build_engine --checkpoint DIR --output DIR`."
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(
            f"engine {directory}: {CONTRACT_FILE} is not JSON ({error}); rebuild the engine."
        ) from error
    if not isinstance(values, dict):
        raise EngineError(
            f"engine {directory}: {CONTRACT_FILE} is not a JSON object; rebuild the engine."
        )
    contract = parse_contract(values, str(path))
    if verify:
        verify_files(directory, contract)
    return contract
