"""A cuda engine built and run on a GPU. Nothing here has run: no GPU was at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from build_engine import aoti
from build_engine.build import BuildConfig, build_engine
from build_engine.config import load_config
from build_engine.contract import load_contract, verify_files
from build_engine.export import FlatStep
from build_engine.model import DenoiseHead, Head
from build_engine.weight_file import WEIGHTS_FILE, assign_weights
from plugins import loader
from plugins.spec import DRAW_FIELDS, Phase
from tests.build_engine.cuda_programs import PAGE, batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BOUND = {"float32": 1e-4, "bfloat16": 0.15}


@pytest.fixture(scope="module", params=BOUND)
def engine(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    output = tmp_path_factory.mktemp("cuda") / "engine"
    build = BuildConfig(
        tiny, output, target="cuda", dtype=request.param, page_size=PAGE, max_context=128
    )
    build_engine(build, lambda _: None)
    return output


@pytest.fixture(scope="module")
def tensors(engine: Path) -> dict[str, Tensor]:
    loader.load()
    return load_file(str(engine / WEIGHTS_FILE))


def package(engine: Path, name: str, tensors: dict[str, Tensor]):
    loaded = torch._inductor.aoti_load_package(str(engine / name))
    names = loaded.get_constant_fqns()
    constants = {one: tensors[one].cuda() for one in names}
    loaded.load_constants(constants, check_full_update=True, user_managed=True)
    return loaded


def on_gpu(value):
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.cuda, value)


def test_an_engine_is_whole(engine: Path) -> None:
    contract = load_contract(engine)
    verify_files(engine, contract)
    packages = {aoti.STEP_FILE, aoti.HEAD_FILE, aoti.DENOISE_FILE}
    assert {*packages, WEIGHTS_FILE} <= set(contract.files)


@pytest.mark.parametrize("rows", [2, 3, 16, 50])
def test_the_step_equals_the_model(
    engine: Path, tiny: Path, tensors: dict[str, Tensor], rows: int
) -> None:
    config, dtype = load_config(tiny), getattr(torch, load_contract(engine).dtype)
    step = FlatStep(config)
    assign_weights(step, tensors)
    inputs = batch(config, [(Phase.PREFILL, 30, rows - rows // 2), (Phase.DENOISE, 20, rows // 2)])
    inputs = inputs._replace(
        soft=inputs.soft.to(dtype), kv_pools=[pool.to(dtype) for pool in inputs.kv_pools]
    )
    ours = on_gpu(tuple(inputs))
    expected = step(*inputs)
    found = package(engine, aoti.STEP_FILE, tensors)(*ours)
    torch.testing.assert_close(found.cpu(), expected, atol=BOUND[str(dtype)[6:]], rtol=0)
    for pool, theirs in zip(ours[-1], inputs.kv_pools, strict=True):
        torch.testing.assert_close(pool.cpu(), theirs, atol=BOUND[str(dtype)[6:]], rtol=0)


@pytest.mark.parametrize("rows", [2, 16, 17, 300])
def test_the_heads_equal_the_model(
    engine: Path, tiny: Path, tensors: dict[str, Tensor], rows: int
) -> None:
    config, dtype = load_config(tiny), getattr(torch, load_contract(engine).dtype)
    hidden = torch.randn(rows, config.geometry.hidden_size).to(dtype)
    labels = torch.randint(-1, 512, (rows, 4), dtype=torch.int32)
    draws = torch.randint(0, 1 << 30, (rows, DRAW_FIELDS))
    for name, head, inputs in (
        (aoti.HEAD_FILE, Head(config), (hidden, labels)),
        (aoti.DENOISE_FILE, DenoiseHead(config), (hidden, torch.full((rows,), 0.6), draws)),
    ):
        assign_weights(head, tensors)
        found = package(engine, name, tensors)(*on_gpu(inputs))
        for ours, theirs in zip(found, head(*inputs), strict=True):
            if ours.is_floating_point():
                torch.testing.assert_close(ours.cpu(), theirs, atol=2e-2, rtol=2e-2)
            else:
                assert (ours.cpu() == theirs).float().mean() > 0.99
