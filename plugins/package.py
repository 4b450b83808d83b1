"""Runs compiled packages on NumPy arrays, by libtorch's C++ alone; imports no torch.

bfloat16, which NumPy does not have, is uint16 with the same bits here. Every call leaves Python's
lock free.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plugins import libtorch
from plugins.errors import PluginError
from plugins.library import build

Values = NDArray[Any]

_MOST_DIMS, _MOST_OUTPUTS = 5, 8
# Numbers of c10::ScalarType.
_TYPES = {np.dtype(name): n for name, n in (("i4", 3), ("i8", 4), ("f4", 6), ("u2", 15))}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}


class _Array(ctypes.Structure):
    """package_capi.cpp's struct of the same name."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * _MOST_DIMS),
        ("dims", ctypes.c_int32),
        ("type", ctypes.c_int32),
    )


_HANDLE, _TEXT, _COUNT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
_ARRAYS = ctypes.POINTER(_Array)
# What each function takes and gives back.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "dg_set_threads": (ctypes.c_int32, _TEXT),
    "dg_cpu_capability": (_TEXT,),
    "dg_release": (_HANDLE, None),
    "dg_open": (_TEXT, ctypes.POINTER(_HANDLE), _TEXT),
    "dg_close": (_HANDLE, None),
    "dg_constants": (_HANDLE, _TEXT),
    "dg_set_constants": (_HANDLE, ctypes.POINTER(_TEXT), _ARRAYS, _COUNT, _TEXT),
    "dg_run": (_HANDLE, _ARRAYS, _COUNT, _ARRAYS, ctypes.POINTER(_COUNT), _TEXT),
}


@functools.cache
def _library() -> ctypes.CDLL:
    libtorch.load()
    library = ctypes.CDLL(str(build()))
    for name, (*arguments, result) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


class Package:
    """A compiled package, open until it is no longer referred to.

    Raises:
        PluginError: it does not load.
    """

    def __init__(self, path: Path) -> None:
        self._library = _library()
        self._handle = _HANDLE()
        self._weights: list[Values] = []
        _check(self._library.dg_open(os.fsencode(path), ctypes.byref(self._handle)))
        # It unpacked files, which must go at the end of the process too.
        weakref.finalize(self, self._library.dg_close, self._handle)
        self.constants = tuple(self._library.dg_constants(self._handle).decode().splitlines())

    def set_constants(self, weights: Mapping[str, Values]) -> None:
        """Takes every weight that the package wants from where it lies, without a copy."""
        self._weights = [weights[name] for name in self.constants]
        names = (_TEXT * len(self.constants))(*(name.encode() for name in self.constants))
        arrays = _described(self._weights)
        _check(self._library.dg_set_constants(self._handle, names, arrays, len(arrays)))

    def run(self, inputs: Sequence[Values]) -> list[Values]:
        """Outputs of one execution; inputs that the package updates are changed in place.

        Raises:
            PluginError: the package failed, or the inputs are not what it was compiled for.
        """
        outputs, count = (_Array * _MOST_OUTPUTS)(), _COUNT(_MOST_OUTPUTS)
        given = (_described(inputs), len(inputs))
        _check(self._library.dg_run(self._handle, *given, outputs, ctypes.byref(count)))
        return [_taken(output) for output in outputs[: count.value]]


def set_num_threads(count: int) -> None:
    """How many threads an execution may use."""
    _check(_library().dg_set_threads(count))


def cpu_capability() -> str:
    """The instruction set that compiled packages are bound to, in torch's words."""
    name: str = _library().dg_cpu_capability().decode()
    return name


def _described(arrays: Sequence[Values]) -> ctypes.Array[_Array]:
    """The arrays as the library takes them; they must outlive the call."""
    return (_Array * len(arrays))(*map(_describe, arrays))


def _describe(array: Values) -> _Array:
    assert array.flags.c_contiguous, "a copy would take what the package writes"
    return _Array(array.ctypes.data, None, array.shape, array.ndim, _TYPES[array.dtype])


def _taken(output: _Array) -> Values:
    """A copy in NumPy's own memory, which may be freed anywhere; the library's is given back."""
    values = np.empty(output.sizes[: output.dims], _DTYPES[output.type])
    ctypes.memmove(values.ctypes.data, output.data, values.nbytes)
    _library().dg_release(output.owner)
    return values


def _check(message: bytes | None) -> None:
    if message is not None:
        raise PluginError(message.decode(errors="replace"))
