"""The compiled head of a denoising step against the ops' reference and against transformers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion

from build_engine.config import load_config
from build_engine.export import export_denoise
from build_engine.model import DenoiseHead
from build_engine.weight_file import assign_weights
from plugins import loader, reference
from plugins.package import Package
from plugins.spec import DRAW_FIELDS

EMBEDDING = "embed_tokens.weight"
# fp32 sums of 64 products in another order, at temperatures from 0.4.
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def weights(tiny_engine: Path) -> dict[str, Tensor]:
    return load_file(str(tiny_engine / "weights.safetensors"))


@pytest.fixture(scope="module")
def package(tiny_engine: Path, weights: dict[str, Tensor]) -> Package:
    """The package as the server loads it."""
    package = Package(tiny_engine / "denoise.pt2")
    package.set_constants({name: weight.numpy() for name, weight in weights.items()})
    return package


def run(package: Package, given: Iterable[Tensor]) -> list[Tensor]:
    return [torch.from_numpy(found) for found in package.run([one.numpy() for one in given])]


def inputs(rows: int, hidden_size: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, hidden_size, generator=generator)
    temperature = 0.4 + 0.4 * torch.rand(rows, generator=generator)
    return hidden, temperature, torch.randint(0, 99, (rows, DRAW_FIELDS), generator=generator)


def test_the_package_holds_no_weight_of_its_own(
    package: Package, weights: dict[str, Tensor], tiny_engine: Path
) -> None:
    assert package.constants == (EMBEDDING,)
    stored = weights[EMBEDDING][:2].numpy().tobytes()
    assert stored in (tiny_engine / "weights.safetensors").read_bytes()
    assert stored not in (tiny_engine / "denoise.pt2").read_bytes()


@pytest.mark.parametrize("rows", [2, 16, 70, 500])
def test_the_package_equals_the_reference(
    package: Package, weights: dict[str, Tensor], rows: int
) -> None:
    given = inputs(rows)
    found = run(package, given)
    hidden, temperature, draws = given
    expected = reference.denoise_head(hidden, weights[EMBEDDING], temperature, draws, 30.0, 8.0)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_the_package_reads_the_weights_it_was_given(
    package: Package, weights: dict[str, Tensor]
) -> None:
    """User-managed: the table lies in memory once, so a change to it shows."""
    given, table = inputs(4), weights[EMBEDDING]
    before, kept = run(package, given)[5], table.clone()
    table.mul_(2)
    try:
        assert not torch.equal(run(package, given)[5], before)
    finally:
        table.copy_(kept)
    assert torch.equal(run(package, given)[5], before)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_soft_is_what_transformers_feeds_back(tiny: Path, dtype: torch.dtype) -> None:
    """Its decoder gives softmax(logits) @ table * scale, in its own dtype, to self-conditioning."""
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(tiny, dtype=dtype).eval()
    seen: list[Tensor] = []
    decoder = model.model.decoder
    decoder.self_conditioning.register_forward_hook(lambda _, given, out: seen.append(given[1]))
    head = DenoiseHead(load_config(tiny))
    assign_weights(head, {EMBEDDING: decoder.embed_tokens.weight.data})
    loader.load()
    hidden, temperature, draws = inputs(16)
    hidden = hidden.to(dtype)
    soft = head(hidden, temperature, draws)[5]
    logits = hidden.float() @ decoder.embed_tokens.weight.float().T
    processed = 30 * torch.tanh(logits / 30) / temperature[:, None]
    model(
        input_ids=torch.tensor([[1, 2, 3]]),
        decoder_input_ids=torch.arange(16)[None],
        self_conditioning_logits=processed[None],
    )
    # bf16: transformers rounds probabilities, product and scaled product, we the last one alone.
    tolerance = CLOSE if dtype == torch.float32 else {"atol": 3e-2, "rtol": 3e-2}
    torch.testing.assert_close(soft, seen[-1][0], **tolerance)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 2816**0.5), (torch.bfloat16, 53.0)])
def test_the_scale_is_rounded_as_the_input_embedding_rounds_it(
    tiny: Path, dtype: torch.dtype, scale: float
) -> None:
    head = DenoiseHead(load_config(tiny))
    head.embed_tokens.scale = 2816**0.5
    assign_weights(head, {EMBEDDING: torch.zeros(512, 64, dtype=dtype)})
    loader.load()
    program = export_denoise(head, 64, dtype)
    node = next(n for n in program.graph.nodes if "denoise_head" in str(n.target))
    assert node.args[5] == torch.tensor(scale, dtype=dtype).item()
