"""The mid-size random checkpoint the benchmarks share: about 124 M parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.checkpoints import make_checkpoint

CACHE = Path(".cache") / "bench"
MIDSIZE: dict[str, Any] = {
    "vocab_size": 32_768,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "global_head_dim": 128,
    "num_global_key_value_heads": 2,
    "sliding_window": 512,
    "num_experts": 16,
    "top_k_experts": 4,
    "moe_intermediate_size": 256,
    "max_position_embeddings": 4096,
}


def midsize_checkpoint() -> Path:
    """The checkpoint's directory; made on first use."""
    directory = CACHE / "midsize"
    if not (directory / "chat_template.jinja").is_file():
        directory.mkdir(parents=True, exist_ok=True)
        make_checkpoint(directory, canvas_length=32, **MIDSIZE)
    return directory


def midsize_engine(dtype: str) -> Path:
    """The engine's directory; built when missing or out of date."""
    return engine_of("mid-size", midsize_checkpoint(), dtype)


def engine_of(name: str, checkpoint: Path, dtype: str = "float32") -> Path:
    """The directory of a checkpoint's engine; built when missing or out of date."""
    output = CACHE / f"{name}-{dtype}"
    command = [sys.executable, "-m", "build_engine", "--if-needed", "--dtype", dtype]
    command += ["--checkpoint", str(checkpoint), "--output", str(output)]
    subprocess.run(command, check=True)
    return output
