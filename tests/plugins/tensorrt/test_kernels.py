"""Every plugin's kernel compiled without a GPU: PTX that takes what TensorRT passes, in order."""

from __future__ import annotations

import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor

import pytest

from plugins.gpu.device import TARGETS, Gpu
from plugins.tensorrt.catalog import PLUGINS
from plugins.tensorrt.kernel import compile_plugin
from tests.plugins.gpu.interpreter import ROOT
from tests.plugins.tensorrt.released import released, setting_of

PROCESSORS = {80: 108, 90: 132, 100: 148, 120: 188}


def compiled(capability: int) -> list[tuple]:
    """Of each plugin at the released checkpoint's sizes: name, wanted and found parameters, then
    threads, shared memory and warps of its plan, and the PTX. Of its first plan, and on one
    target of its last."""
    os.environ["TRITON_CACHE_DIR"] = str(ROOT / ".cache" / "triton")
    found, seen = [], set()
    for nodes, graph in released("bfloat16", Gpu(capability, PROCESSORS[capability])):
        for node in nodes:
            plugin, setting = setting_of(node, graph)
            plans = plugin.plans(setting)
            for plan in (plans[0], plans[-1]) if capability == 90 else plans[:1]:
                if (plugin.name, plan) not in seen:
                    seen.add((plugin.name, plan))
                    found.append(described(plugin, plan, compile_plugin(plugin, plan, setting)))
    return found


def described(plugin, plan, artifact) -> tuple:
    wanted = ["u64"] * len(plugin.inputs) + ["u32"] * len(plugin.scalars)
    wanted += ["u64"] * len(plugin.outputs)
    entry = re.search(rf"\.entry {artifact.entry}\((.*?)\)", artifact.ptx, re.DOTALL)
    kinds = re.findall(r"\.param \.(\w+)", entry.group(1))
    sizes = artifact.threads, artifact.shared_bytes, plan.warps
    return (plugin.name, wanted, kinds, *sizes, artifact.ptx)


@pytest.fixture(scope="module")
def kernels() -> dict[int, list]:
    """On every core, in fresh processes: one that has torch's threads must not be forked."""
    context = multiprocessing.get_context("spawn")
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return dict(zip(TARGETS, pool.map(compiled, TARGETS), strict=True))


@pytest.mark.parametrize("capability", TARGETS)
def test_every_plugin_takes_exactly_what_tensorrt_passes(kernels, capability):
    assert {name for name, *_ in kernels[capability]} == set(PLUGINS)
    for name, wanted, kinds, threads, shared, warps, ptx in kernels[capability]:
        assert kinds == wanted, name
        assert threads == 32 * warps
        assert f".reqntid {threads}" in ptx
        assert shared <= Gpu(capability).shared_bytes
        assert f".target sm_{capability}" in ptx


def test_every_plugin_can_do_with_the_shared_memory_of_any_launch(kernels):
    """Whether TensorRT opts in to more than 48 KiB is not known, so one tactic asks for less."""
    least = {}
    for name, _, _, _, shared, *_ in kernels[90]:
        least[name] = min(shared, least.get(name, shared))
    assert max(least.values()) <= 48 << 10


def test_a_tactic_is_the_same_plan_at_every_dynamic_size():
    """TensorRT asks once a profile, and keeps one kernel a tactic for all profiles."""
    for dtype in ("bfloat16", "float32"):
        for nodes, graph in released(dtype, Gpu(90, 132)):
            for node in nodes:
                plugin, usual = setting_of(node, graph)
                for rows in (1, 17, 4096):
                    _, setting = setting_of(node, graph, rows)
                    assert plugin.plans(setting) == plugin.plans(usual), plugin.name


def test_grids_and_outputs_are_the_kernels_own():
    """The symbolic grid of each plan equals the plan's own at several sizes."""
    from plugins.tensorrt.sizes import evaluate

    checked = set()
    for nodes, graph in released("bfloat16", Gpu(90, 132)):
        for node in nodes:
            plugin, _ = setting_of(node, graph)
            for rows in (1, 17, 256, 4096):
                _, setting = setting_of(node, graph, rows)
                for plan in plugin.plans(setting):
                    words = {**setting.sizes, "rows": rows, "segments": 5, "pairs": 8 * rows}
                    grid = tuple(evaluate(size, words) for size in plugin.grid(plan))
                    wanted = own_grid(plugin.name, plan, rows, setting)
                    if wanted is not None:
                        assert grid == wanted, (plugin.name, plan)
                        checked.add(plugin.name)
    assert len(checked) == 10


def own_grid(name: str, plan, rows: int, setting) -> tuple[int, ...] | None:
    """What plugins.gpu launches the kernel with, where a plan tells."""
    chunk = int(setting.attributes.get("chunk", 0))
    own = {
        "page_write": lambda: plan.grid(rows),
        "attend": lambda: plan.grid(rows, 5),
        "attend_split": lambda: plan.grid(rows, 5),
        "expert_gate_up": lambda: plan.grid(8 * rows, plan.shape.inner),
        "expert_down": lambda: plan.grid(8 * rows, plan.shape.hidden),
        "expert_combine": lambda: plan.combine_grid(rows),
        "label_fold": lambda: plan.grid(rows),
        "denoise_fold": lambda: (plan.blocks(rows), plan.tiles_in(chunk)),
        "denoise_soft": lambda: plan.soft_grid(rows),
        "denoise_finish": lambda: (rows, plan.soft_grid(rows)[1]),
    }
    return own[name]() if name in own else None
