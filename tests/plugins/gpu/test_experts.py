"""The GPU's routed experts, interpreted, against their reference, over uneven routings."""

import pytest
import torch

from plugins import reference
from tests.plugins.test_experts import Size, make

OP = "plugins.gpu.experts_op.routed_experts"
# fp32: two chained sums in another order than the reference's, and an exponential good to 1e-7.
# bf16 and fp16: inner activations round to the type on both sides, perhaps to different neighbours;
# the interpreter cuts bf16 off where a GPU rounds, so inside and result may each be a step off.
TOLERANCE = {
    torch.float32: {"atol": 2e-5, "rtol": 2e-5},
    torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2},
    torch.float16: {"atol": 2e-3, "rtol": 4e-3},
}


def check(interpreter, arguments: list) -> None:
    expected = reference.routed_experts(*arguments)
    tolerance = TOLERANCE[arguments[0].dtype]
    torch.testing.assert_close(interpreter.run(OP, *arguments), expected, **tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "size",
    [
        *(Size(1), Size(1, choices=1), Size(15), Size(16), Size(17, experts=4, choices=4)),
        *(Size(40, experts=2), Size(9, hidden=70, inner=44), Size(9, hidden=32, inner=2)),
        *(Size(3, experts=128, choices=8, hidden=40, inner=34), Size(2, hidden=130, inner=200)),
    ],
    ids=str,
)
def test_experts_equal_the_reference(interpreter, size, dtype):
    check(interpreter, make(size, dtype))


def test_all_rows_to_one_expert(interpreter):
    arguments = make(Size(50, choices=1))
    arguments[1].fill_(5)
    check(interpreter, arguments)


def test_a_row_may_choose_an_expert_twice(interpreter):
    arguments = make(Size(10))
    arguments[1].fill_(7)
    check(interpreter, arguments)


def test_more_pairs_than_are_looked_through_at_a_time(interpreter):
    check(interpreter, make(Size(600, experts=4, hidden=16, inner=16)))


def test_int32_ids_equal_int64_ids(interpreter):
    arguments = make(Size(20))
    narrow = [arguments[0], arguments[1].int(), *arguments[2:]]
    assert torch.equal(interpreter.run(OP, *narrow), interpreter.run(OP, *arguments))


def test_unchosen_experts_are_never_read(interpreter):
    arguments = make(Size(4))
    unchosen = [e for e in range(8) if e not in arguments[1]]
    poisoned = [tensor.clone() for tensor in arguments]
    poisoned[3][unchosen] = torch.nan
    poisoned[4][unchosen] = torch.nan
    assert torch.equal(interpreter.run(OP, *poisoned), interpreter.run(OP, *arguments))


def test_a_row_does_not_depend_on_what_stands_in_others_bitwise(interpreter):
    """Rows keep their places: the interpreter's products order sums by place, as no GPU does."""
    arguments = make(Size(40, experts=4))
    batch = interpreter.run(OP, *arguments)
    arguments[0][:39] = make(Size(39))[0]
    arguments[2][:39] = 1
    assert torch.equal(interpreter.run(OP, *arguments)[39], batch[39])


def test_extreme_gates_stay_finite(interpreter):
    arguments = make(Size(10))
    arguments[0] *= 1e4
    out = interpreter.run(OP, *arguments)
    torch.testing.assert_close(out, reference.routed_experts(*arguments), rtol=1e-4, atol=1e3)


def test_zero_rows(interpreter):
    assert interpreter.run(OP, *make(Size(0))).shape == (0, 64)


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (1, lambda ids: ids[:2], "must be \\[N, K\\]"),
        (3, lambda gate_up: gate_up[:, :60].contiguous(), "must be \\[N, H\\]"),
        (3, lambda gate_up: gate_up.bfloat16(), "of one type"),
        (4, lambda down: down.transpose(1, 2).contiguous().transpose(1, 2), "contiguous"),
    ],
)
def test_a_bad_argument_is_refused(interpreter, index, change, message):
    arguments = make(Size(10))
    arguments[index] = change(arguments[index])
    with pytest.raises(ValueError, match=message):
        interpreter.run(OP, *arguments)
