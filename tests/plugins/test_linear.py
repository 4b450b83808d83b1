"""The linear kernel against its reference, packed and row-major."""

import pytest
import torch

from plugins import reference
from plugins.layout import pack_panels

# fp32: sums of K products of size one in another order; error grows like sqrt(K) * 1e-7.
FP32 = {"atol": 1e-4, "rtol": 1e-5}
# bf16: both accumulate in fp32 and round once, so results differ by at most one step (2^-8).
BF16 = {"atol": 1e-2, "rtol": 8e-3}


def make(rows: int, depth: int, columns: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(rows * depth + columns)
    x = torch.randn(rows, depth, generator=generator).to(dtype)
    return x, torch.randn(columns, depth, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [*range(1, 16), 28, 57, 300])
@pytest.mark.parametrize(("depth", "columns"), [(2, 1), (30, 33), (64, 32), (130, 200)])
def test_linear_equals_the_reference(rows, depth, columns, packed, dtype):
    x, weight = make(rows, depth, columns, dtype)
    out = torch.ops.dg.linear(x, pack_panels(weight) if packed else weight, columns)
    tolerance = FP32 if dtype == torch.float32 else BF16
    torch.testing.assert_close(out, reference.linear(x, weight), **tolerance)


@pytest.mark.parametrize(("rows", "depth"), [(2560, 64), (40, 1024), (200, 2048), (700, 8192)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunked_rows_and_copied_rows(rows, depth, dtype):
    x, weight = make(rows, depth, 50, dtype)
    out = torch.ops.dg.linear(x, pack_panels(weight), 50)
    tolerance = (
        {"atol": 1e-3, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.1, "rtol": 8e-3}
    )
    torch.testing.assert_close(out, reference.linear(x, weight), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("packed", [True, False])
def test_a_row_does_not_depend_on_the_others_bitwise(packed, dtype):
    x, weight = make(1000, 96, 70, dtype)
    stored = pack_panels(weight) if packed else weight
    batch = torch.ops.dg.linear(x, stored, 70)
    for rows in (slice(0, 1), slice(3, 5), slice(990, 1000), slice(10, 170)):
        assert torch.equal(torch.ops.dg.linear(x[rows], stored, 70), batch[rows])


def test_zero_rows():
    assert torch.ops.dg.linear(torch.empty(0, 8), torch.randn(4, 8), 4).shape == (0, 4)


def test_a_strided_input():
    x, weight = make(12, 64, 40, torch.float32)
    assert torch.equal(
        torch.ops.dg.linear(x.T.contiguous().T, weight, 40), torch.ops.dg.linear(x, weight, 40)
    )


@pytest.mark.parametrize(
    ("x", "weight", "columns", "message"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(5, 4), 5, "x has shape"),
        (torch.zeros(2, 4), torch.zeros(5, 3), 5, r"weight.size\(1\) is 3"),
        (torch.zeros(2, 4), torch.zeros(5, 4), 6, r"weight.size\(0\) is 5"),
        (torch.zeros(2, 4), torch.zeros(2, 4, 32), 65, r"weight.size\(0\) is 2"),
        (torch.zeros(2, 4), torch.zeros(2, 4, 16), 64, r"weight.size\(2\) is 16"),
        (torch.zeros(2, 4), torch.zeros(4, 5).T, 5, "weight has strides"),
        (torch.zeros(2, 4), torch.zeros(5, 4).bfloat16(), 5, "weight is BFloat16"),
        (torch.zeros(2, 4).double(), torch.zeros(5, 4).double(), 5, "x is Double"),
        (torch.zeros(2, 3).bfloat16(), torch.zeros(5, 3).bfloat16(), 5, "odd width 3"),
    ],
)
def test_a_bad_argument_is_named(x, weight, columns, message):
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dg.linear(x, weight, columns)
