"""Compiled packages through the C functions: types, updates in place, errors as messages."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from plugins import package
from plugins.errors import PluginError
from plugins.package import Package

pytestmark = pytest.mark.slow

WIDTH = 32  # of a weight that is not so small that it is compiled in


class Small(torch.nn.Module):
    """A weight, an input that is updated, every dtype that an engine has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(WIDTH, dtype=torch.bfloat16))

    def forward(self, x, pool, ids):
        pool.add_(1)
        scaled = x * self.scale
        return scaled, scaled.float().sum(1), ids.to(torch.int32) + 1, ids * 2


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = torch.export.Dim("rows")
    inputs = (
        torch.ones(3, WIDTH, dtype=torch.bfloat16),
        torch.zeros(2, 1, 2, 1, 2),
        torch.arange(3),
    )
    with torch.no_grad():
        program = torch.export.export(Small(), inputs, dynamic_shapes=({0: rows}, None, {0: rows}))
        target = tmp_path_factory.mktemp("package") / "small.pt2"
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(target),
            inductor_configs={"aot_inductor.package_constants_in_so": False},
        )
    return target


@pytest.fixture
def small(path: Path) -> Package:
    opened = Package(path)
    opened.set_constants({"scale": halves(2), "more": halves(1)})
    return opened


def halves(*values: float) -> np.ndarray:
    """A row of these bfloat16 values, over and over, as their bits."""
    row = np.resize(np.array(values, np.float32), WIDTH)
    return (row.view(np.uint32) >> 16).astype(np.uint16)


def inputs(rows: int) -> list[np.ndarray]:
    x = np.stack([halves(n, 1, 0.5, -3) for n in range(rows)])
    return [x, np.zeros((2, 1, 2, 1, 2), np.float32), np.arange(rows)]


@pytest.mark.parametrize("rows", [2, 7])
def test_outputs_have_their_dtypes_and_updates_are_in_place(small: Package, rows: int) -> None:
    given = inputs(rows)
    scaled, sums, small_ids, ids = small.run(given)
    assert (scaled == np.stack([halves(2 * n, 2, 1, -6) for n in range(rows)])).all()
    assert [values.dtype for values in (scaled, sums, small_ids, ids)] == [
        np.uint16, np.float32, np.int32, np.int64,
    ]  # fmt: skip
    assert sums.tolist() == [16 * n - 24 for n in range(rows)]
    assert small_ids.tolist() == [n + 1 for n in range(rows)]
    assert ids.tolist() == [2 * n for n in range(rows)]
    assert (given[1] == 1).all()


def test_outputs_stay_when_the_package_goes(path: Path) -> None:
    opened = Package(path)
    opened.set_constants({"scale": halves(1)})
    outputs = opened.run(inputs(5))
    del opened
    gc.collect()
    assert outputs[3].tolist() == [0, 2, 4, 6, 8]


def test_weights_are_used_where_they_lie(path: Path) -> None:
    opened, scale = Package(path), halves(1)
    assert opened.constants == ("scale",)
    opened.set_constants({"scale": scale})
    scale[:] = halves(4)
    assert opened.run(inputs(2))[1].tolist() == [-48, -16]


def test_no_package_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "bad.pt2").write_bytes(b"not an archive")
    for name in ("none.pt2", "bad.pt2"):
        with pytest.raises(PluginError, match=r"\w"):
            Package(tmp_path / name)


def test_wrong_inputs_are_a_message_and_the_package_goes_on(small: Package) -> None:
    with pytest.raises(PluginError, match=r"\w"):
        small.run(inputs(2)[:2])
    assert len(small.run(inputs(2))) == 4


def test_a_strided_input_is_refused(small: Package) -> None:
    x, pool, ids = inputs(4)
    with pytest.raises(AssertionError, match="a copy would take"):
        small.run([x, pool, np.repeat(ids, 2)[::2]])


def test_a_missing_weight_is_named(path: Path) -> None:
    with pytest.raises(KeyError, match="scale"):
        Package(path).set_constants({})


def test_a_run_leaves_pythons_lock_free(small: Package) -> None:
    """No thread is ever made to give way here: another one gets on only while the lock is free."""
    go, went = threading.Event(), threading.Event()

    def other() -> None:
        go.wait()
        went.set()

    thread = threading.Thread(target=other)
    thread.start()
    interval, deadline = sys.getswitchinterval(), time.monotonic() + 10
    sys.setswitchinterval(60)
    try:
        go.set()
        while not went.is_set() and time.monotonic() < deadline:
            small.run(inputs(2))
        seen = went.is_set()
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert seen


def test_the_capability_is_torchs() -> None:
    assert package.cpu_capability() == torch.backends.cpu.get_cpu_capability()


def test_no_threads_is_a_message() -> None:
    with pytest.raises(PluginError, match="positive"):
        package.set_num_threads(0)


def test_threads_are_torchs() -> None:
    before = torch.get_num_threads()
    try:
        package.set_num_threads(before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        package.set_num_threads(before)
