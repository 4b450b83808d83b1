"""The kernels become the ops' CUDA implementation when asked to, and not before."""

import subprocess
import sys

from tests.plugins.gpu.interpreter import ROOT

OPS = ("linear", "routed_experts", "label_head", "denoise_head", "mixed_mask_paged_attention")


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_every_op_has_a_cuda_implementation_only_once_registered():
    """In a process of its own, as a registration cannot be taken back."""
    run(f"""
import torch
from plugins import loader
from plugins.gpu import register
loader.load()
has = lambda op: torch._C._dispatch_has_kernel_for_dispatch_key(f"dg::{{op}}", "CUDA")
assert not any(map(has, {OPS}))
register.register()
assert all(map(has, {OPS}))
x, weight = torch.randn(2, 8), torch.randn(4, 8)
torch.testing.assert_close(register.linear(x, weight, 4), torch.ops.dg.linear(x, weight, 4))
""")


def test_cpu_engines_load_no_triton():
    run("import sys, plugins.gpu, plugins.loader; assert 'triton' not in sys.modules")
