"""The interpreter that this folder's tests share with those of the kernels."""

from tests.plugins.gpu.conftest import interpreter

__all__ = ["interpreter"]
