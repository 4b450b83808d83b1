"""Where a graph's weights lie: tensors of safetensors files, by the checkpoint's own names.

ONNX external data is a file name, an offset and a length, so a safetensors file serves as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from build_engine.errors import EngineError
from build_engine.job import Job
from build_engine.safetensors_file import Stored, write_safetensors
from build_engine.weights import check_weights, read_weights, source_of, weight_table

WEIGHTS_FILE = "weights.safetensors"
_STORED = {"float32": "F32", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Place:
    """One stored tensor: its checkpoint name, and its bytes in a file beside the graph."""

    name: str
    file: str
    offset: int
    length: int
    shape: tuple[int, ...]


def write_weights(job: Job) -> dict[str, Place]:
    """Every weight by our name, written to the engine or, weightless, left in the checkpoint.

    Raises:
        EngineError: the checkpoint lacks weights, or a weightless build's dtype is not its own.
    """
    table = weight_table(job.config)
    check_weights(job.checkpoint, job.config)
    named = {weight.name: source_of(job.checkpoint, weight) for weight in table}
    if job.options.weightless:
        files = {job.checkpoint.file_of(source) for source in named.values()}
    else:
        dtype = job.torch_dtype
        values = (tensor for _, tensor in read_weights(job.checkpoint, job.config, dtype))
        layout = [Stored(named[weight.name], dtype, weight.shape) for weight in table]
        write_safetensors(job.directory / WEIGHTS_FILE, layout, values)
        files = {job.directory / WEIGHTS_FILE}
    stored = {name: place for file in sorted(files) for name, place in _places(file, job).items()}
    return {name: stored[source] for name, source in named.items()}


def _places(file: Path, job: Job) -> dict[str, Place]:
    with file.open("rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(size))
    header.pop("__metadata__", None)
    places = {}
    for name, entry in header.items():
        wrong = entry["dtype"] != _STORED[job.dtype]
        if wrong and job.options.weightless and "vision" not in name:
            raise EngineError(
                f"--weightless needs the checkpoint's own --dtype: {name} in {file.name} is "
                f"{entry['dtype']}, not {job.dtype}."
            )
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        places[name] = Place(name, file.name, 8 + size + first, last - first, shape)
    return places
