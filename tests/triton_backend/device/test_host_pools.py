"""Pages go to host memory and come back as they were, in their group's layers alone."""

import numpy as np
import pytest
import torch

from build_engine.contract import load_contract
from tests.triton_backend.fakes import make_contract
from triton_backend.core import Transfer
from triton_backend.device.host_pools import HostPools
from triton_backend.runner_cpu import CpuRunner


def make_pools():
    drawn = torch.Generator().manual_seed(0)
    return [torch.randn(6, 2, 4, 1, 8, generator=drawn) for _ in range(2)]


@pytest.mark.parametrize("sliding", [False, True])
def test_pages_come_back_as_they_went_and_nothing_else_changes(sliding):
    pools = make_pools()
    before = [pool.clone() for pool in pools]
    host = HostPools(make_contract(), pools, {False: 3, True: 3})
    host.move([Transfer(sliding, 4, 2), Transfer(sliding, 1, 0)], [])
    mine = 0 if sliding else 1  # the fake's first layer slides, its second is full
    pools[mine][[1, 4]] = -1
    host.move([], [Transfer(sliding, 5, 2), Transfer(sliding, 1, 0)])
    assert torch.equal(pools[mine][5], before[mine][4])
    assert torch.equal(pools[mine][1], before[mine][1])
    assert torch.equal(pools[mine][[0, 2, 3]], before[mine][[0, 2, 3]])
    assert torch.equal(pools[1 - mine], before[1 - mine])


def test_what_goes_out_and_comes_back_with_one_step_goes_out_first():
    pools = make_pools()
    wanted = pools[1][2].clone()
    host = HostPools(make_contract(), pools, {False: 1, True: 1})
    host.move([Transfer(False, 2, 0)], [Transfer(False, 3, 0)])
    assert torch.equal(pools[1][3], wanted)


def test_the_cpu_runner_moves_pages_alike(tiny_engine):
    runner = CpuRunner(tiny_engine, load_contract(tiny_engine, verify=False))
    runner.create_pools(6, 5)
    runner.create_host_pools(2, 2)
    drawn = np.random.default_rng(0)
    for pool in runner.pools:
        pool[:] = drawn.standard_normal(pool.shape)
    before = [pool.copy() for pool in runner.pools]
    moves = [Transfer(True, 3, 1), Transfer(False, 5, 0)]
    runner.move(moves, [])
    for pool in runner.pools:
        pool[:] = 0
    runner.move([], moves)
    for n, (pool, old) in enumerate(zip(runner.pools, before, strict=True)):
        page = 3 if runner.contract.geometry.is_sliding(n) else 5
        assert (pool[page] == old[page]).all()
        assert not np.delete(pool, page, axis=0).any()
