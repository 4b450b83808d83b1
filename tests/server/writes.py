"""Generations that the server tests ask for, and how their streams are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from examples.clients.tensors import inputs
from tests.server.reads import TICKET, Streams

MODEL = "diffusion_gemma"
ASK = "Write a reply and say what happens next."
TYPES: dict[str, type] = {
    "max_tokens": np.int32, "max_denoising_steps": np.int32, "canvas_length": np.int32,
    "stability_threshold": np.int32, "top_k": np.int32, "min_tokens": np.int32, "seed": np.uint64,
    "entropy_bound": np.float32, "t_min": np.float32, "t_max": np.float32, "top_p": np.float32,
    "confidence_threshold": np.float32, "temperature": np.float32, "repetition_penalty": np.float32,
    "stream": np.bool_, "return_log_probs": np.bool_, "return_drafts": np.bool_,
}  # fmt: skip


def write(message: str = f"{TICKET}\n\n{ASK}", **options: Any) -> list[triton.InferInput]:
    """A chat generation; options by their input names, None leaves one out."""
    given: dict[str, Any] = {
        "messages": json.dumps([{"role": "user", "content": message}]), "max_tokens": 64, **options
    }  # fmt: skip
    typed = {
        name: TYPES[name](value) if name in TYPES and value is not None else value
        for name, value in given.items()
    }
    return inputs(triton, typed)


def responses(streams: Streams, **options: Any) -> list[dict[str, Any]]:
    """Every response of one generation, as arrays by name; the last one is the final."""
    streams.send(MODEL, write(**options))
    return list(_until_final(streams))


def _until_final(streams: Streams) -> Iterator[dict[str, Any]]:
    while True:
        result = streams.next()
        given = {out.name: result.as_numpy(out.name) for out in result.get_response().outputs}
        yield given
        if "finish_reason" in given:
            return


def text_of(response: dict[str, Any]) -> str:
    """The text of one response."""
    return str(response["text_output"][0].decode())


def tokens_of(response: dict[str, Any]) -> list[int]:
    """The token ids of one response."""
    ids: list[int] = response["output_ids"].tolist()
    return ids
