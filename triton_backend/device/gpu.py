"""The one GPU that an engine process serves on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from build_engine.contract import EngineContract
from build_engine.errors import EngineError
from triton_backend.device.checks import check_capability


def gpu_for(contract: EngineContract) -> torch.device:
    """The first visible GPU, if the engine can run on it.

    Raises:
        EngineError: there is none, or the engine was built for others.
    """
    if not torch.cuda.is_available():
        raise EngineError(
            f"a {contract.target} engine needs an NVIDIA GPU, and torch {torch.__version__} finds "
            "none here; serve it where there is one, with torch's CUDA build, or build with "
            "`--target cpu`."
        )
    device = torch.device("cuda", 0)
    major, minor = torch.cuda.get_device_capability(device)
    check_capability(contract, f"{major}.{minor}", torch.cuda.get_device_name(device))
    return device


def new_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream of its own, which libraries want instead of the default one; a CPU has none."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def running_on(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Work that is enqueued meanwhile goes to the stream, whatever thread enqueues it."""
    if stream is None:
        yield
    else:
        with torch.cuda.stream(stream):
            yield


def stream_handle(device: torch.device) -> int:
    """The current stream as C libraries take it."""
    if device.type != "cuda":
        return 0
    handle: int = torch.cuda.current_stream(device).cuda_stream
    return handle


def settle(device: torch.device) -> None:
    """Waits for what is enqueued on the current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
