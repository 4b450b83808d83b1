"""Only what comes again is kept, and only so much of it."""

from __future__ import annotations

import pytest
import torch

from triton_backend.device.graphs import Graphs, call_key
from triton_backend.device.recurring import Recurring


def test_a_key_recurs_when_it_is_seen_again():
    recurring: Recurring[str] = Recurring(2)
    assert not recurring.recurs("a")
    assert not recurring.recurs("b")
    assert recurring.recurs("a")


def test_the_least_recently_used_is_dropped():
    recurring: Recurring[int] = Recurring(2)
    recurring.keep("a", 1)
    recurring.keep("b", 2)
    assert recurring.find("a") == 1
    recurring.keep("c", 3)
    assert [recurring.find(key) for key in "abc"] == [1, None, 3]
    assert len(recurring) == 2


def test_what_was_seen_long_ago_counts_as_new():
    """Else the memory of keys would grow with every shape a server ever saw."""
    recurring: Recurring[int] = Recurring(1)
    for key in range(17):
        assert not recurring.recurs(key)
    assert recurring.recurs(16)
    assert not recurring.recurs(0)


def inputs(rows: int = 4, pool: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    return {"token_ids": torch.arange(rows), "kv_pool.0": POOL if pool is None else pool}


POOL = torch.zeros(3, 2, 4, 1, 8)


def test_calls_of_the_same_shapes_share_a_graph():
    assert call_key("step", inputs()) == call_key("step", inputs())
    assert hash(call_key("step", inputs())) == hash(call_key("step", inputs()))


def test_another_function_shape_or_pool_is_another_graph():
    """A graph holds the pools' addresses: after they are made anew it would write freed memory."""
    key = call_key("step", inputs())
    assert key != call_key("head", inputs())
    assert key != call_key("step", inputs(rows=6))
    assert key != call_key("step", inputs(pool=POOL.clone()))


def test_a_shape_seen_once_is_never_captured():
    """A capture costs an execution more and keeps memory, which one that never returns wastes."""
    ran = []

    def plain(given):
        ran.append(given["token_ids"].tolist())
        return {"hidden": given["token_ids"]}

    def bind(given):
        raise AssertionError("captured")

    graphs = Graphs(2)
    for rows in (1, 2, 3):
        given = inputs(rows)
        assert (
            graphs.run(call_key("step", given), given, plain, bind)["hidden"] is given["token_ids"]
        )
    assert ran == [[0], [0, 1], [0, 1, 2]]
    with pytest.raises(AssertionError, match="captured"):
        graphs.run(call_key("step", inputs(2)), inputs(2), plain, bind)
