"""Makes request tensors for both of tritonclient's modules; knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from tritonclient.utils import np_to_triton_dtype


def inputs(triton: ModuleType, values: Mapping[str, Any]) -> list[Any]:
    """Input tensors for `tritonclient.grpc` or `tritonclient.http`; None leaves one out.

    A text, or one NumPy number or boolean, becomes a tensor of one element; arrays stay.
    """
    return [_input(triton, name, value) for name, value in values.items() if value is not None]


def _input(triton: ModuleType, name: str, value: Any) -> Any:
    if isinstance(value, str):
        value = np.array([value.encode()], dtype=np.object_)
    array = np.atleast_1d(value)
    tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor
