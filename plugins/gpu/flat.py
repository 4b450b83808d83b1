"""Kernels with nothing but tensors, numbers and text for arguments, as torch's compiler wants them.

It knows no tuples and writes constants down as text, so outputs are passed one by one and the plan
as `plan_text` has it. What it copies into its own source is the entry made here, `read_plan` and
the kernel with all that it calls.
"""

import linecache
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import triton
import triton.language as tl


@triton.constexpr_function  # type: ignore[untyped-decorator]
def read_plan(text: str) -> object:
    """The plan of a text, while a kernel is compiled; wherever this source has been copied to."""
    from plugins.gpu.plan_text import read  # noqa: PLC0415

    return read(text)


def spread(arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Arguments with tuples' members in their place, and the tuples' lengths, 0 for no tuple."""
    flattened: list[Any] = []
    for one in arguments:
        flattened += one if isinstance(one, tuple) else [one]
    lengths = tuple(len(one) if isinstance(one, tuple) else 0 for one in arguments)
    return tuple(flattened), lengths


@cache
def flat(kernel: Any, lengths: tuple[int, ...]) -> Any:
    """An entry to `kernel` for arguments spread like these, then the plan's text.

    An argument `outputs` of length 2 becomes `outputs_0` and `outputs_1`.
    """
    names = kernel.arg_names[: len(lengths)]
    if kernel.arg_names != [*names, "plan"]:
        raise ValueError(f"{kernel.__name__} takes {kernel.arg_names}, not {len(lengths)} and plan")
    parts = [
        [f"{name}_{index}" for index in range(length)] or [name]
        for name, length in zip(names, lengths, strict=True)
    ]
    passed = [
        f"({', '.join(part)},)" if length else part[0]
        for part, length in zip(parts, lengths, strict=True)
    ]
    name = f"{kernel.__name__}_flat"
    source = (
        f"def {name}({', '.join(chain(*parts))}, plan: tl.constexpr):\n"
        f"    {kernel.__name__}({', '.join(passed)}, read_plan(plan))\n"
    )
    scope = {"tl": tl, "read_plan": read_plan, kernel.__name__: kernel, "__name__": __name__}
    return triton.jit(_define(name, source, scope))


def _define(name: str, source: str, scope: dict[str, Any]) -> Any:
    """A function of this source, which whoever asks Python for it is given."""
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    return scope[name]
