"""Every kernel gets through Triton's own launch path, at the released sizes, but for the launch."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_parent import ROOT
from plugins.gpu.device import Gpu

KERNELS = {
    *("page_write_kernel", "attend_kernel", "attend_split_kernel", "merge_kernel"),
    *("sort_kernel", "gate_up_kernel", "down_kernel", "combine_kernel"),
    *("label_fold_kernel", "label_merge_kernel", "denoise_fold_kernel", "denoise_merge_kernel"),
    *("denoise_soft_kernel", "denoise_finish_kernel"),
}
GRID_LIMITS = (2**31 - 1, 65_535, 65_535)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [90])
def test_every_kernel_is_bound_and_compiled_as_it_would_be_launched(capability):
    """Catches arguments that the just-in-time compiler does not take and compiling ahead does."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(ROOT / ".cache" / "triton")}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.benchmarks.launch_probe", str(capability)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name for name, *_ in made} == KERNELS
    for name, shared, grid in made:
        assert shared <= Gpu(capability).shared_bytes, name
        assert all(0 < size <= limit for size, limit in zip(grid, GRID_LIMITS, strict=False)), name
