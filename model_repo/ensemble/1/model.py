"""Triton looks for TritonPythonModel here."""

from triton_backend.model import EnsembleModel as TritonPythonModel  # noqa: F401
