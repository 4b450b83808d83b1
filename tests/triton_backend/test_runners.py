"""Every target that can be built can be served, or says what it lacks."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from build_engine.job import TARGETS
from tests.triton_backend.fakes import make_contract
from triton_backend import runners
from triton_backend.runner import RunnerOptions


def test_every_target_has_a_runner() -> None:
    assert set(runners.TARGETS) == set(TARGETS)


def test_only_pools_of_cpu_targets_take_this_machines_memory() -> None:
    """A GPU's pools may well be larger than the host's memory."""
    found = {
        target: runners.pools_in_host_memory(dataclasses.replace(make_contract(), target=target))
        for target in runners.TARGETS
    }
    assert {target for target, host in found.items() if host} == {"cpu", "onnx"}


def test_a_fault_of_ours_is_not_told_as_a_missing_package(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> None:
        raise ImportError("cannot import name 'x'", name="triton_backend.device.graphs")

    monkeypatch.setattr(importlib, "import_module", broken)
    contract = dataclasses.replace(make_contract(), target="onnx")
    with pytest.raises(ImportError, match="cannot import name 'x'"):
        runners.open_runner(tmp_path, contract, RunnerOptions())
