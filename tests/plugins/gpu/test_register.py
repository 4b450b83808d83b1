"""The kernels become the ops' CUDA implementation when asked to, and not before."""

import subprocess
import sys

import pytest

from tests.plugins.gpu.interpreter import ROOT

OPS = ("linear", "routed_experts", "label_head", "denoise_head", "mixed_mask_paged_attention")


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize("order", ["register load", "load register load register"])
def test_every_op_has_a_cuda_implementation_whatever_came_first(order):
    """In a process of its own, as a registration cannot be taken back."""
    calls = order.replace("load", "loader.load();").replace("register", "register.register();")
    run(f"""
import torch
from plugins import loader
from plugins.gpu import register
key = lambda op: torch._C._dispatch_has_kernel_for_dispatch_key(f"dg::{{op}}", "CUDA")
has = lambda op: hasattr(torch.ops.dg, op) and key(op)
assert not any(map(has, {OPS}))
{calls}
assert all(map(has, {OPS}))
x, weight = torch.randn(2, 8), torch.randn(4, 8)
torch.testing.assert_close(register.linear(x, weight, 4), torch.ops.dg.linear(x, weight, 4))
""")


def test_without_the_library_nothing_is_compiled():
    """As on a machine that has a GPU, torch and triton, and no C++ compiler."""
    run(f"""
import os, sys, torch
os.environ["PATH"] = os.environ["CXX"] = ""
from plugins.gpu import register
for _ in range(2):
    register.register()
assert all(hasattr(torch.ops.dg, op) for op in {OPS})
assert "plugins.library" not in sys.modules
with torch._subclasses.FakeTensorMode():
    x, weight = torch.empty(2, 8, device="cuda"), torch.empty(4, 8, device="cuda")
    assert torch.ops.dg.linear(x, weight, 4).device.type == "cuda"
""")


def test_cpu_engines_load_no_triton():
    run("import sys, plugins.gpu, plugins.loader; assert 'triton' not in sys.modules")
