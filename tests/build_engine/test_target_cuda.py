"""Programs for a GPU: what stands in them, and that they are right for any number of rows.

No GPU is here: launches of the exported programs run one by one in Triton's interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from build_engine import aoti, target_cuda
from build_engine.job import Job
from build_engine.model import StepInputs
from build_engine.weight_file import WEIGHTS_FILE
from build_engine.weights import weight_table
from plugins import loader
from plugins.gpu.device import Gpu
from plugins.gpu.lowering import Lowering
from plugins.spec import DRAW_FIELDS, Phase
from tests.build_engine.cuda_programs import Part, batch, functions, job_of, shortened
from tests.plugins.gpu.compile_target import absent_gpu
from tests.plugins.gpu.interpreter import Interpreter
from tests.plugins.gpu.traced_program import functional, interpreted, kernel_of, launches

PREFILL, DENOISE, COMMIT = Phase
GPU = Gpu(90, 4)
"""So small that the keys of few rows are split, and of more are not."""

BATCHES: dict[str, list[Part]] = {
    "3 rows": [(PREFILL, 30, 3)],
    "50 rows": [(PREFILL, 5, 20), (DENOISE, 25, 16), (COMMIT, 40, 14)],
}
# Sums of up to 96 products, in another order than the CPU kernels', over two layers.
BOUND = 1e-4


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as started:
        yield started


@pytest.fixture(scope="module")
def job(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    loader.load()
    return job_of(tiny, tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def tensors(job: Job) -> dict[str, Tensor]:
    """What the whole job writes for its packages."""
    aoti.write_and_load(job, aoti.functions(job), packed={})
    return load_file(str(job.directory / WEIGHTS_FILE))


@pytest.fixture(scope="module")
def made(job: Job, tensors: dict[str, Tensor]) -> aoti.Functions:
    return functions(job, tensors)


@pytest.fixture(scope="module")
def programs(job: Job, made: aoti.Functions) -> aoti.Programs:
    """As they come out of the builder's export, made functional as Inductor does."""
    build = target_cuda.build_of(job, GPU)
    with absent_gpu(GPU.capability), Lowering(build):
        exported = aoti.export(shortened(job), made)
    return {name: functional(program, build) for name, program in exported.items()}


def test_weights_lie_as_in_the_checkpoint(job: Job, tensors: dict[str, Tensor]) -> None:
    for weight in weight_table(job.config):
        source = next(name for name in weight.sources if name in job.checkpoint)
        assert torch.equal(tensors[weight.name], job.checkpoint.tensor(source).float())
    assert {"sliding_frequencies", "full_frequencies"} <= tensors.keys()


def test_every_op_became_launches(programs: aoti.Programs) -> None:
    found = {
        name: Counter(kernel_of(launch).removesuffix("_kernel") for launch in launches(program))
        for name, program in programs.items()
    }
    experts = {"sort": 2, "gate_up": 2, "down": 2, "combine": 2}
    # Keys of the one layer without a window are split in four, in two, or not.
    attention = {"page_write": 2, "attend": 2, "attend_split": 2, "merge": 2}
    denoise = ("denoise_fold", "denoise_merge", "denoise_soft", "denoise_finish")
    assert found == {
        aoti.STEP_FILE: {**experts, **attention},
        aoti.HEAD_FILE: {"label_fold": 1, "label_merge": 1},
        aoti.DENOISE_FILE: dict.fromkeys(denoise, 1),
    }
    assert not any("dg." in str(node.target) for p in programs.values() for node in p.graph.nodes)


def test_launches_follow_the_rows(programs: aoti.Programs) -> None:
    """No size of the example is fixed in a grid that depends on rows."""
    for launch in launches(programs[aoti.STEP_FILE]):
        if kernel_of(launch) != "sort_kernel":
            assert isinstance(launch.kwargs["grid"][0][0], torch.fx.Node), kernel_of(launch)


@pytest.mark.parametrize("parts", BATCHES.values(), ids=BATCHES)
def test_the_step_equals_the_model(
    job: Job,
    made: aoti.Functions,
    programs: aoti.Programs,
    interpreter: Interpreter,
    parts: list[Part],
) -> None:
    """Hidden states, and what stands in the pools afterwards."""
    inputs = batch(shortened(job).config, parts)

    def copy() -> StepInputs:
        return inputs._replace(kv_pools=[pool.clone() for pool in inputs.kv_pools])

    theirs, ours = copy(), copy()
    expected = made.step(*theirs)
    with interpreted(interpreter):
        found = programs[aoti.STEP_FILE].module()(*ours)
    worst = [(found - expected).abs().max()]
    worst += [(a - b).abs().max() for a, b in zip(ours.kv_pools, theirs.kv_pools, strict=True)]
    assert max(worst) <= BOUND
    assert not torch.equal(ours.kv_pools[1], inputs.kv_pools[1])


def test_the_heads_equal_the_model(
    job: Job, made: aoti.Functions, programs: aoti.Programs, interpreter: Interpreter
) -> None:
    rows, generator = 33, torch.Generator().manual_seed(33)
    hidden = torch.randn(rows, job.config.geometry.hidden_size, generator=generator)
    labels = torch.randint(-1, 512, (rows, 4), generator=generator, dtype=torch.int32)
    draws = torch.randint(0, 1 << 30, (rows, DRAW_FIELDS), generator=generator)
    temperature = 0.4 + torch.rand(rows, generator=generator)
    for name, head, inputs in (
        (aoti.HEAD_FILE, made.head, (hidden, labels)),
        (aoti.DENOISE_FILE, made.denoise, (hidden, temperature, draws)),
    ):
        with interpreted(interpreter):
            found = programs[name].module()(*inputs)
        for ours, theirs in zip(found, head(*inputs), strict=True):
            torch.testing.assert_close(ours, theirs, atol=BOUND, rtol=1e-5)
