"""Triton looks for TritonPythonModel here."""

from triton_backend.model import StructuredReadModel as TritonPythonModel  # noqa: F401
