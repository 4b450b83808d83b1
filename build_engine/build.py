"""One build from a checkpoint directory to a published engine directory."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from build_engine.checkpoint import Checkpoint
from build_engine.config import ModelConfig, load_config
from build_engine.contract import DTYPE_BYTES, EngineContract, Limits, file_sha256, load_contract
from build_engine.engine_dir import building, check_output, publish
from build_engine.errors import EngineError
from build_engine.job import DTYPES, TARGETS, Job, Options, target
from build_engine.tokenizer_files import check_tokenizer, copy_tokenizer
from build_engine.weights import check_weights, weight_bytes
from plugins import layout, spec

_LARGEST_PAGE = 4096
# What the exported graphs leave room for.
_MOST = {
    "max_step_tokens": 32_768,
    "max_segments": 32_768,
    "max_output_rows": 32_768,
    "max_labels": 4096,
}


@dataclass(frozen=True)
class BuildConfig:
    """What the command line asks for; sizes in tokens."""

    checkpoint: Path
    output: Path
    target: str = "cpu"
    dtype: str = "float32"
    page_size: int = 16
    max_step_tokens: int = 4096
    max_segments: int = 256
    max_context: int | None = None
    max_canvas: int | None = None
    max_output_rows: int = 1024
    max_labels: int = 256
    weightless: bool = False
    compute_capability: tuple[str, ...] = ()

    @property
    def options(self) -> Options:
        """What only some targets take."""
        return Options(self.weightless, tuple(self.compute_capability))

    def problems(self) -> list[str]:
        """Every value out of range, named with its limit."""
        found = []
        if self.target not in TARGETS:
            found.append(f"--target {self.target!r} is not one of {sorted(TARGETS)}")
        if self.dtype not in DTYPE_BYTES:
            found.append(f"--dtype {self.dtype!r} is not one of {sorted(DTYPE_BYTES)}")
        page = self.page_size
        if not 1 <= page <= _LARGEST_PAGE or page & (page - 1):
            found.append(f"--page-size {page} is not a power of two from 1 to {_LARGEST_PAGE}")
        found += [
            f"--{name.replace('_', '-')} {getattr(self, name)} is outside 2..{most}"
            for name, most in _MOST.items()
            if not 2 <= getattr(self, name) <= most
        ]
        return found


def limits_of(build: BuildConfig, config: ModelConfig) -> Limits:
    """Limits of the engine: as asked, within what the checkpoint can do.

    Raises:
        EngineError: a limit above what the checkpoint's positions allow.
    """
    context = build.max_context
    if context is None:
        context = min(config.max_positions, 8192)
    if not 2 <= context <= config.max_positions:
        raise EngineError(
            f"--max-context {context} is outside 2..{config.max_positions}, the checkpoint's "
            "max_position_embeddings."
        )
    most = min(context, _MOST["max_step_tokens"])
    canvas = build.max_canvas
    if canvas is None:
        canvas = min(config.geometry.canvas_length, most)
    if not 1 <= canvas <= most:
        raise EngineError(f"--max-canvas {canvas} is outside 1..{most} (--max-context {context}).")
    return Limits(
        max_step_tokens=max(build.max_step_tokens, canvas),
        max_segments=build.max_segments,
        max_context=context,
        max_canvas=canvas,
        max_output_rows=build.max_output_rows,
        max_labels=build.max_labels,
    )


def _sources_sha256() -> str:
    """Digest of what decides an engine's content besides its checkpoint and options."""
    here = Path(__file__).parent
    ops = Path(spec.__file__).parent
    files = [*here.glob("*.py"), Path(spec.__file__), Path(layout.__file__), *ops.glob("onnx_*.py")]
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _contract(
    build: BuildConfig, config: ModelConfig, limits: Limits, checkpoint: Checkpoint
) -> EngineContract:
    return EngineContract(
        target=build.target,
        dtype=build.dtype,
        page_size=build.page_size,
        geometry=config.geometry,
        limits=limits,
        stop_ids=config.stop_ids,
        pad_id=config.pad_id,
        bos_id=config.bos_id,
        checkpoint=checkpoint.identity(),
        builder={
            "torch": torch.__version__,
            "safetensors": importlib.metadata.version("safetensors"),
            "sources": _sources_sha256(),
            **target(build.target).identity(build.options),
        },
    )


def up_to_date(build: BuildConfig) -> bool:
    """Whether the output already is this engine, file for file."""
    try:
        present = load_contract(build.output)
        config = load_config(build.checkpoint)
        wanted = _contract(build, config, limits_of(build, config), Checkpoint(build.checkpoint))
    except EngineError:
        return False
    return present.to_json() == _with_files(wanted, present.files).to_json()


def _with_files(contract: EngineContract, files: dict[str, str]) -> EngineContract:
    values = {name: getattr(contract, name) for name in contract.__dataclass_fields__}
    return EngineContract(**{**values, "files": files})


def build_engine(build: BuildConfig, report: Callable[[str], None]) -> EngineContract:
    """Build and publish an engine; `report` is called with the name of each stage.

    Raises:
        EngineError: a bad option or checkpoint; nothing is left at the output.
    """
    problems = build.problems()
    if not problems:
        problems = target(build.target).problems(build.dtype, build.options)
    if problems:
        raise EngineError("; ".join(problems) + ".")
    check_output(build.output, build.checkpoint)
    report("checkpoint")
    config = load_config(build.checkpoint)
    limits = limits_of(build, config)
    check_tokenizer(build.checkpoint, config.geometry.vocab_size)
    checkpoint = Checkpoint(build.checkpoint)
    check_weights(checkpoint, config)
    needed = 0 if build.weightless else weight_bytes(config, DTYPES[build.dtype])
    with building(build.output, needed) as directory:
        names = copy_tokenizer(build.checkpoint, directory)
        job = Job(
            checkpoint,
            config,
            limits,
            build.page_size,
            build.dtype,
            build.options,
            directory,
            report,
        )
        names += target(build.target).build(job)
        report("publish")
        files = {name: file_sha256(directory / name) for name in sorted(names)}
        contract = _with_files(_contract(build, config, limits, checkpoint), files)
        publish(directory, build.output, contract)
    checkpoint.close()
    return contract
