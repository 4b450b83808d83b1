"""Schemas in Python: those of the C++ library, and both can follow each other in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from plugins.definitions import SCHEMAS

ROOT = Path(__file__).parents[2]


def run(script: str) -> None:
    """In a process of its own, as a registration cannot be taken back."""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_every_schema_is_the_librarys() -> None:
    """The library is loaded by this folder's fixture."""
    for name, schema in SCHEMAS.items():
        assert str(getattr(torch.ops.dg, name).default._schema) == f"dg::{name}{schema}"
    registered = {one for one in torch._C._dispatch_get_all_op_names() if one.startswith("dg::")}
    assert registered == {f"dg::{name}" for name in SCHEMAS}


def test_ops_are_defined_without_the_library_and_only_once() -> None:
    run("""
import sys, torch
from plugins import definitions, fakes
assert not definitions.defined()
for _ in range(2):
    definitions.define()
    fakes.register()
assert definitions.defined()
assert "plugins.library" not in sys.modules
with torch._subclasses.FakeTensorMode():
    assert torch.ops.dg.linear(torch.empty(2, 8), torch.empty(4, 8), 4).shape == (2, 4)
""")


def test_the_library_takes_the_definitions_place() -> None:
    run("""
import torch
from plugins import definitions, fakes, loader
definitions.define()
fakes.register()
loader.load()
definitions.define()
loader.load()
x, weight = torch.randn(2, 8), torch.randn(4, 8)
torch.testing.assert_close(torch.ops.dg.linear(x, weight, 4), x @ weight.T)
""")
