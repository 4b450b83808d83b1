"""The one GPU that an engine process serves on."""

from __future__ import annotations

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


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of its own, which library calls want instead of the default one."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
