"""One launch of a kernel's flat entry, in the interpreter's process."""

import importlib
from typing import Any

from plugins.gpu.flat import flat


def launch(
    module: str, name: str, lengths: tuple, grid: tuple, plan: str, arguments: list[Any]
) -> None:
    kernel = getattr(importlib.import_module(module), name)
    flat(kernel, lengths)[grid](*arguments, plan)
