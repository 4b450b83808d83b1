"""Enumerations and callbacks of the double, by release where releases differ."""

from __future__ import annotations

from enum import IntEnum
from types import ModuleType

DataType = IntEnum("DataType", {"FLOAT": 0, "HALF": 1, "INT32": 3, "INT64": 8, "BF16": 7})
ProfilingVerbosity = IntEnum("ProfilingVerbosity", {"LAYER_NAMES_ONLY": 0, "DETAILED": 2})
LayerInformationFormat = IntEnum("LayerInformationFormat", {"ONELINE": 0, "JSON": 1})
PreviewFeature = IntEnum(
    "PreviewFeature", {"ALIASED_PLUGIN_IO_10_03": 1, "RUNTIME_ACTIVATION_RESIZE_10_10": 2}
)
_FLAGS = {"REFIT": 2, "TF32": 4, "STRIP_PLAN": 16, "REFIT_IDENTICAL": 18, "REFIT_INDIVIDUAL": 23}
# Gone in 11, where a network's types alone say what is computed.
_WEAK_FLAGS = {"FP16": 0, "BF16": 14}


class ILogger:
    """Base of loggers; the library calls `log`."""

    Severity = IntEnum("Severity", {"INTERNAL_ERROR": 0, "ERROR": 1, "WARNING": 2, "INFO": 3})


class IProgressMonitor:
    """Base of progress monitors."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError

    def phase_finish(self, phase_name: str) -> None:
        raise NotImplementedError


def fill(module: ModuleType, version: str) -> None:
    """Names that a release has."""
    old = version.startswith("10.")
    flags = {"STRONGLY_TYPED": 1, "PREFER_AOT_PYTHON_PLUGINS": 2, "PREFER_JIT_PYTHON_PLUGINS": 3}
    network = {"EXPLICIT_BATCH": 0, **flags} if old else flags
    module.NetworkDefinitionCreationFlag = IntEnum("NetworkDefinitionCreationFlag", network)
    module.BuilderFlag = IntEnum("BuilderFlag", {**_FLAGS, **(_WEAK_FLAGS if old else {})})
    for kind in (DataType, ProfilingVerbosity, LayerInformationFormat, PreviewFeature):
        setattr(module, kind.__name__, kind)
    module.ILogger, module.IProgressMonitor = ILogger, IProgressMonitor
    module.float32, module.float16 = DataType.FLOAT, DataType.HALF
    module.bfloat16, module.int32, module.int64 = DataType.BF16, DataType.INT32, DataType.INT64
    module.__version__ = version
