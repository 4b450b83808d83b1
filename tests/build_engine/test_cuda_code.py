"""What Inductor makes of the step for a GPU, which is not here: its calls and its kernels.

The demo checkpoint's widths and its last layer, in bf16.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from build_engine import export, target_cuda
from build_engine.contract import FULL, Limits
from build_engine.export import FlatStep, export_step, step_example
from build_engine.weight_file import assign_weights
from plugins.gpu import register
from plugins.gpu.device import Gpu
from plugins.gpu.lowering import Lowering
from tests.build_engine.absent_cuda import (
    Generated,
    PlainIndexing,
    compile_kernels,
    generate,
    on_the_gpu,
)
from tests.build_engine.cuda_programs import job_of
from tests.plugins.gpu.compile_target import absent_gpu

pytestmark = pytest.mark.slow
DEMO = Path("examples/tickets/checkpoint")
GPU = Gpu(90, 40)
DTYPE = torch.bfloat16
CALL = re.compile(r"call_(\w+_kernel)_flat_\d+\((.*)\);")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    register.register()
    job = job_of(DEMO, tmp_path_factory.mktemp("cuda"), "bfloat16")
    geometry = replace(job.config.geometry, num_layers=1, layer_types=(FULL,))
    config = replace(job.config, geometry=geometry)
    job = replace(job, config=config, limits=Limits(512, 8, 2048, 32, 64, 8), page_size=16)
    step = FlatStep(job.config)
    weights = {name: torch.empty(one.shape, dtype=DTYPE) for name, one in step.named_parameters()}
    weights |= dict(step.named_buffers())
    weights, example = on_the_gpu((weights, step_example(job.config, job.page_size, DTYPE)))
    assign_weights(step, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "step_example", lambda *_: example)
        with absent_gpu(90), PlainIndexing(), Lowering(target_cuda.build_of(job, GPU)):
            program = export_step(step, job.limits, job.page_size, DTYPE)
    return generate(program, GPU, target_cuda.INDUCTOR)


def calls(code: Generated) -> list[tuple[str, list[str]]]:
    """(kernel, arguments) of every launch of ours."""
    return [(name, arguments.split(", ")) for name, arguments in CALL.findall(code.wrapper)]


def test_every_tier_is_called(code: Generated) -> None:
    names = [name.removesuffix("_kernel") for name, _ in calls(code)]
    attention = ["page_write", "attend_split", "merge", "attend_split", "merge"]
    assert names == [*attention, "sort", *["gate_up"] * 3, *["down"] * 3, "combine"]


def test_pools_are_written_in_place(code: Generated) -> None:
    """What the page write and the attention are given is the package's own input."""
    (written,) = {arguments[5] for name, arguments in calls(code) if name == "page_write_kernel"}
    (read,) = {arguments[1] for name, arguments in calls(code) if name.startswith("attend")}
    assert written == read
    assert written.startswith("arg")
    assert not re.search(r"copy_\(|clone", code.wrapper)


def test_what_several_tiers_read_is_stored_once(code: Generated) -> None:
    for kernel in ("gate_up_kernel", "attend_split_kernel"):
        first = {
            re.sub(r"\W|_\d+$", "", a[0].rstrip(")")) for name, a in calls(code) if name == kernel
        }
        assert len(first) == 1


def test_grids_are_worked_out_of_the_rows(code: Generated) -> None:
    """Another tier's are empty: a factor that is 0 or 1."""
    gate_up = [", ".join(arguments) for name, arguments in calls(code) if name == "gate_up_kernel"]
    assert all("std::min(static_cast<int64_t>(1L)" in one for one in gate_up)
    assert all(re.search(r"\bs\d+\b", one) for one in gate_up)


def test_kernels_compile_from_what_inductor_copied(
    code: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To machine code, each with the plan that stands in its text."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = compile_kernels(code, GPU, "_flat")
    called = {name for name, _ in calls(code)}
    assert {re.sub(r"_flat_\d+$", "", name) for name in made} == called
    assert all(binary.startswith(b"\x7fELF") for binary in made.values())
