"""Keeps files and functions small: `python scripts/size_gate.py [DIRECTORY ...]`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

FILE_NOTICE, FILE_LIMIT, FUNCTION_LIMIT, PARAMETER_LIMIT = 150, 300, 50, 8
DIRECTORIES = (
    *("plugins", "build_engine", "triton_backend", "model_repo"),
    *("examples", "benchmarks", "scripts", "tests"),
)
_SUFFIXES = {".py", ".cpp", ".h", ".cu", ".cuh", ".sh"}


def sources(directories: Sequence[str]) -> Iterator[Path]:
    """Every source file below the directories that exist."""
    for directory in directories:
        yield from sorted(p for p in Path(directory).rglob("*") if p.suffix in _SUFFIXES)


def function_faults(path: Path, tree: ast.AST) -> Iterator[str]:
    """Functions of one Python file that are too long or take too many parameters."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{path}:{node.lineno} {node.name}"
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LIMIT:
            yield f"{where}: {lines} lines, limit {FUNCTION_LIMIT}"
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = len([one for one in given if one.arg not in ("self", "cls")])
        # The parameters of an exported module's `forward` are the graph's bindings.
        if count > PARAMETER_LIMIT and node.name != "forward":
            yield f"{where}: {count} parameters, limit {PARAMETER_LIMIT}"


def is_data(tree: ast.Module) -> bool:
    """Whether a module holds tables only, which have no size limit: nothing in it is defined."""
    return not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)


def check(path: Path) -> tuple[list[str], list[str]]:
    """Notices and faults of one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text) if path.suffix == ".py" else None
    faults = [] if tree is None else list(function_faults(path, tree))
    lines = text.count("\n")
    if tree is not None and is_data(tree):
        return [], faults
    if lines > FILE_LIMIT:
        faults.append(f"{path}: {lines} lines, limit {FILE_LIMIT}")
    return ([f"{path}: {lines} lines"] if lines > FILE_NOTICE else []), faults


def main(directories: Sequence[str]) -> int:
    """Prints what grows and what is too large; 1 if anything is."""
    results = [check(path) for path in sources(directories or DIRECTORIES)]
    notices = [notice for some, _ in results for notice in some]
    faults = [fault for _, some in results for fault in some]
    for notice in notices:
        print(f"over {FILE_NOTICE}: {notice}")
    for fault in faults:
        print(f"TOO LARGE: {fault}")
    print(
        f"size: {len(results)} files, {len(notices)} over {FILE_NOTICE} lines, {len(faults)} faults"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
