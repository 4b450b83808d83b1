"""Triton looks for TritonPythonModel here."""

from triton_backend.model import EngineModel as TritonPythonModel  # noqa: F401
