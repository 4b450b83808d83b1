"""Reads one input of a request out of its array, or says what is wrong with it.

Knows shapes, types and UTF-8; not what a field is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_backend.core import RequestError

Array = NDArray[Any]
Inputs = Mapping[str, Array]


def text(inputs: Inputs, name: str, max_bytes: int) -> str:
    """One string.

    Raises:
        RequestError: another shape or type, too many bytes, or not UTF-8.
    """
    value = _only(inputs[name], name, "string")
    if not isinstance(value, bytes | str):
        raise RequestError(name, f"is {inputs[name].dtype}", "a string is needed")
    if len(value) > max_bytes:
        raise RequestError(name, f"has {len(value)} bytes", f"the limit is {max_bytes}")
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            name, f"is not valid UTF-8 at byte {error.start}", "UTF-8 text is needed"
        ) from None


def whole_number(inputs: Inputs, name: str) -> int:
    """One unsigned number of 64 bits."""
    array = inputs[name]
    if array.dtype != np.uint64:
        raise RequestError(name, f"is {array.dtype}", "uint64 is needed")
    return int(_only(array, name, "number"))


def number(inputs: Inputs, name: str) -> float:
    """One number, whole or not; of any precision, the shortest decimal that it stands for."""
    array = inputs[name]
    if array.dtype.kind not in "iuf":
        raise RequestError(name, f"is {array.dtype}", "a number is needed")
    return float(str(_only(array, name, "number")))


def flag(inputs: Inputs, name: str) -> bool:
    """One boolean; false if it is not given."""
    if name not in inputs:
        return False
    array = inputs[name]
    if array.dtype != np.bool_:
        raise RequestError(name, f"is {array.dtype}", "a boolean is needed")
    return bool(_only(array, name, "boolean"))


def texts(inputs: Inputs, name: str, max_bytes: int) -> tuple[str, ...]:
    """Any number of strings, empty ones left out."""
    array = inputs[name].reshape(-1)
    each = (text({name: array[n : n + 1]}, name, max_bytes) for n in range(len(array)))
    return tuple(value for value in each if value)


def row_of_ids(inputs: Inputs, name: str) -> NDArray[np.int32]:
    """A row of numbers, given as [n] or [1, n]."""
    array = _int32(inputs[name], name)
    if array.ndim != 1 and (array.ndim != 2 or array.shape[0] != 1):
        raise RequestError(name, f"has shape {list(array.shape)}", "one row [n] is needed")
    return array.reshape(-1)


def table_of_ids(inputs: Inputs, name: str) -> NDArray[np.int32]:
    """A table of numbers, rows by columns."""
    array = _int32(inputs[name], name)
    if array.ndim != 2:
        raise RequestError(name, f"has shape {list(array.shape)}", "[slots, labels] is needed")
    return array


def check_below(values: NDArray[np.int32], limit: int, name: str, what: str) -> None:
    """Refuses the first value outside 0 to `limit` - 1, with its position."""
    wrong = np.flatnonzero((values < 0) | (values >= limit))
    if wrong.size:
        at = int(wrong[0])
        raise RequestError(
            name, f"holds {int(values[at])} at position {at}", f"{what} has 0 to {limit - 1}"
        )


def _only(array: Array, name: str, what: str) -> Any:
    if array.size != 1:
        raise RequestError(name, f"has shape {list(array.shape)}", f"exactly one {what} is needed")
    return array.reshape(-1)[0]


def _int32(array: Array, name: str) -> NDArray[np.int32]:
    if array.dtype != np.int32:
        raise RequestError(name, f"is {array.dtype}", "int32 is needed")
    return array
