"""The ONNX functions of experts and heads, run by onnxruntime, against the ops' references."""

import numpy as np
import pytest
import torch

from plugins import reference
from tests.plugins import denoise_cases

pytest.importorskip("onnxruntime")
from tests.plugins.onnx_ops import run

# fp32 sums of at most 64 products in another order, through a soft-cap and a softmax.
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


@pytest.mark.parametrize(("rows", "top_k"), [(1, 1), (2, 4), (17, 2)])
def test_experts(rows: int, top_k: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 64, generator=generator)
    ids = torch.stack([torch.randperm(8, generator=generator)[:top_k] for _ in range(rows)])
    weights = torch.rand(rows, top_k, generator=generator)
    gate_up = torch.randn(8, 96, 64, generator=generator) / 8
    down = torch.randn(8, 64, 48, generator=generator) / 7
    names = ("x", "expert_ids", "expert_weights", "gate_up", "down")
    given = (x, ids, weights, gate_up, down)
    (found,) = run("routed_experts", dict(zip(names, given, strict=True)), "f2")
    torch.testing.assert_close(found, reference.routed_experts(*given), **CLOSE)


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 7), (5, 1003)])
def test_the_label_head(rows: int, vocabulary: int) -> None:
    case = denoise_cases.make_case(rows, vocabulary)
    labels = torch.tensor([[1, 5, -1]] * rows, dtype=torch.int32)
    given = {"hidden": case.hidden, "embedding": case.embedding, "label_ids": labels}
    found = run("label_head", given, "f2 f1 f1 i1", softcap=30.0)
    expected = reference.label_head(case.hidden, case.embedding, labels, 30.0)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize(
    ("rows", "vocabulary", "temperatures"),
    [(1, 5, (0.4, 0.8)), (70, 1003, (0.4, 0.8)), (9, 2048, (0.005, 0.02))],
)
def test_the_denoise_head(rows: int, vocabulary: int, temperatures: tuple[float, float]) -> None:
    """The same candidates too: the draws of a row are those of every other implementation."""
    case = denoise_cases.make_case(rows, vocabulary, temperatures=temperatures)
    names = ("hidden", "embedding", "temperature", "draws")
    given = {name: getattr(case, name) for name in names}
    found = run("denoise_head", given, "i1 i1 f1 f1 f1 f2", softcap=30.0, scale=case.scale)
    # Errors of logits are divided by the temperature.
    close = {"atol": 2e-5 / min(temperatures), "rtol": 1e-5}
    for ours, theirs in zip(found, case.expected(), strict=True):
        torch.testing.assert_close(ours, theirs, **close)


def test_draws_near_one_keep_their_distance() -> None:
    """An fp32 u cannot tell the largest draws apart, and they decide."""
    words = [
        0,
        255,
        1 << 8,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 513,
        (1 << 32) - 257,
        (1 << 32) - 1,
    ]
    (found,) = run("minus_log_uniform", {"word": torch.tensor(words)}, "f1")
    exact = -np.log((np.array(words) // 256 + 0.5) * 2.0**-24)
    # Three roundings of fp32 each.
    np.testing.assert_allclose(found.numpy(), exact, rtol=4e-7)


def test_xor_by_table_is_xor() -> None:
    a, b = torch.randint(0, 1 << 32, (2, 1000), generator=torch.Generator().manual_seed(0))
    first, second = np.divmod(np.arange(1 << 16), 1 << 8)
    given = {"a": a, "b": b, "table": torch.from_numpy(first ^ second)}
    (found,) = run("xor_by_table", given, "l1")
    assert torch.equal(found, a ^ b)
