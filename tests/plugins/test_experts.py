"""The routed experts kernel against its reference, over uneven routings and sizes."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.layout import pack_panels

# fp32: two chained sums in another order than the reference's, and an exponential good to 1e-7.
FP32 = {"atol": 2e-5, "rtol": 2e-5}
# bf16: the inner activations round to bf16 (2^-8) on both sides, possibly to different neighbours.
BF16 = {"atol": 1e-2, "rtol": 2e-2}


@dataclass(frozen=True)
class Size:
    rows: int
    experts: int = 8
    choices: int = 2
    hidden: int = 64
    inner: int = 32


def make(size: Size, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size.rows)
    scores = torch.rand(size.rows, size.experts, generator=generator)
    weights, ids = scores.topk(size.choices)
    gate_up = torch.randn(size.experts, 2 * size.inner, size.hidden, generator=generator)
    down = torch.randn(size.experts, size.hidden, size.inner, generator=generator)
    return [
        torch.randn(size.rows, size.hidden, generator=generator).to(dtype),
        ids,
        weights / weights.sum(-1, keepdim=True),
        (gate_up * size.hidden**-0.5).to(dtype),
        (down * size.inner**-0.5).to(dtype),
    ]


def pack(arguments: list[Tensor]) -> list[Tensor]:
    *rows, gate_up, down = arguments
    return [*rows, pack_panels(gate_up, parts=2), pack_panels(down)]


def check(arguments: list[Tensor]) -> None:
    tolerance = FP32 if arguments[0].dtype == torch.float32 else BF16
    expected = reference.routed_experts(*arguments)
    for stored in (arguments, pack(arguments)):
        torch.testing.assert_close(torch.ops.dg.routed_experts(*stored), expected, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "size",
    [
        Size(1),
        Size(1, choices=1),
        Size(15),
        Size(60, experts=4, choices=4),
        Size(160, experts=16, choices=4),
        Size(9, hidden=70, inner=44),
        Size(9, hidden=32, inner=2),
        Size(40, experts=128, choices=8, hidden=40, inner=34),
        Size(6, hidden=256, inner=704),
    ],
)
def test_experts_equal_the_reference(size, dtype):
    check(make(size, dtype))


def test_all_rows_to_one_expert():
    arguments = make(Size(50, choices=1))
    arguments[1].fill_(5)
    check(arguments)


def test_a_row_may_choose_an_expert_twice():
    arguments = make(Size(10))
    arguments[1].fill_(3)
    check(arguments)


def test_int32_ids_equal_int64_ids():
    arguments = make(Size(20))
    narrow = [arguments[0], arguments[1].int(), *arguments[2:]]
    assert torch.equal(
        torch.ops.dg.routed_experts(*narrow), torch.ops.dg.routed_experts(*arguments)
    )


def test_zero_rows():
    assert torch.ops.dg.routed_experts(*make(Size(0))).shape == (0, 64)


def test_unchosen_experts_are_never_read():
    arguments = pack(make(Size(4)))
    unchosen = [e for e in range(8) if e not in arguments[1]]
    poisoned = [tensor.clone() for tensor in arguments]
    poisoned[3][unchosen] = torch.nan
    poisoned[4][unchosen] = torch.nan
    assert torch.equal(
        torch.ops.dg.routed_experts(*poisoned), torch.ops.dg.routed_experts(*arguments)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_does_not_depend_on_the_others_bitwise(threads, dtype):
    """Catches sums whose order follows the number of rows an expert happens to get."""
    arguments = pack(make(Size(160, experts=16, choices=4), dtype))
    before = torch.get_num_threads()
    batch = torch.ops.dg.routed_experts(*arguments)
    torch.set_num_threads(threads)
    try:
        for rows in (slice(0, 1), slice(7, 40), slice(150, 160)):
            lone = [tensor[rows] for tensor in arguments[:3]] + arguments[3:]
            assert torch.equal(torch.ops.dg.routed_experts(*lone), batch[rows])
    finally:
        torch.set_num_threads(before)


def test_extreme_gates_stay_finite():
    arguments = make(Size(20))
    arguments[0] *= 1e4
    out = torch.ops.dg.routed_experts(*pack(arguments))
    torch.testing.assert_close(out, reference.routed_experts(*arguments), rtol=1e-4, atol=1e3)


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (1, lambda ids: ids + 7, "expert_ids holds"),
        (1, lambda ids: -ids - 1, "expert_ids holds -"),
        (1, lambda ids: ids.float(), "expert_ids is Float"),
        (1, lambda ids: ids[:2], r"expert_ids.size\(0\) is 2"),
        (2, lambda weights: weights[:, :1], "expert_weights has shape"),
        (2, lambda weights: weights.double(), "expert_weights is Double"),
        (3, lambda gate_up: gate_up[:, :60].contiguous(), r"gate_up.size\(1\) is 60"),
        (3, lambda gate_up: gate_up[:, :, :60].contiguous(), r"gate_up.size\(2\) is 60"),
        (3, lambda gate_up: gate_up.bfloat16(), "gate_up is BFloat16"),
        (4, lambda down: down[:7], r"down.size\(0\) is 7"),
        (4, pack_panels, "down has shape"),
        (4, lambda down: down.transpose(1, 2).contiguous().transpose(1, 2), "down has strides"),
    ],
)
def test_a_bad_argument_is_named(index, change, message):
    arguments = make(Size(10))
    arguments[index] = change(arguments[index])
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dg.routed_experts(*arguments)
