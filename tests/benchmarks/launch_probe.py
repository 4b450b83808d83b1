"""Takes every kernel through Triton's launch path, up to the launch, for a GPU that is not here.

A program of its own, since Triton asks its driver for the machine's GPU once. Prints a line of JSON
for each kernel that is compiled: its name, the shared memory of a program, the grid.
"""

import json
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from benchmarks.gpu_sizes import RELEASED
from plugins.gpu import attention_op, experts_op, heads_op
from plugins.gpu.device import Gpu

GEOMETRY, PAGE = RELEASED.geometry, RELEASED.page


class AbsentGpu:
    """What Triton asks of a driver before it launches."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def pretend(gpu: Gpu) -> None:
    """Launches compile for `gpu` and then stop."""
    driver.set_active(AbsentGpu(gpu.capability))

    def launch(kernel: Any, grid: tuple[int, ...], arguments: Any, plan: Any) -> None:
        warps, stages = plan.warps, plan.stages
        made = kernel.warmup(*arguments, plan, grid=grid, num_warps=warps, num_stages=stages)
        print(json.dumps([kernel.__name__, made.metadata.shared, grid]))

    for module in (attention_op, experts_op, heads_op):
        module.launch, module.gpu_of = launch, lambda tensor: gpu


def attention(layer: int, rows: int, pages: int) -> None:
    heads, kv, width = GEOMETRY.num_heads, GEOMETRY.kv_heads(layer), GEOMETRY.head_dim(layer)
    q, k = (torch.empty(rows, n, width, dtype=torch.bfloat16) for n in (heads, kv))
    pool = torch.empty(2, 2, PAGE, kv, width, dtype=torch.bfloat16)
    slots = torch.empty(rows, dtype=torch.int64)
    segments, table = torch.zeros(2, 5, dtype=torch.int32), torch.zeros(2, pages, dtype=torch.int32)
    attention_op.mixed_mask_paged_attention(
        q, k, k, pool, slots, segments, table, GEOMETRY.window(layer)
    )


def experts(rows: int) -> None:
    count, inner, hidden = (
        GEOMETRY.num_experts,
        GEOMETRY.moe_intermediate_size,
        GEOMETRY.hidden_size,
    )
    # Never touched, so never there.
    gate_up = torch.empty(count, 2 * inner, hidden, dtype=torch.bfloat16)
    down = torch.empty(count, hidden, inner, dtype=torch.bfloat16)
    ids = torch.empty(rows, GEOMETRY.top_k_experts, dtype=torch.int64)
    x = torch.empty(rows, hidden, dtype=torch.bfloat16)
    experts_op.routed_experts(x, ids, ids.float(), gate_up, down)


def heads(rows: int) -> None:
    hidden = torch.empty(rows, GEOMETRY.hidden_size, dtype=torch.bfloat16)
    table = torch.empty(GEOMETRY.vocab_size, GEOMETRY.hidden_size, dtype=torch.bfloat16)
    labels = torch.empty(rows, 8, dtype=torch.int32)
    heads_op.label_head(hidden, table, labels, 30.0)
    temperature, draws = torch.empty(rows), torch.empty(rows, 3, dtype=torch.int64)
    heads_op.denoise_head(hidden, table, temperature, draws, 30.0, 53.0)


def main() -> None:
    pretend(Gpu(int(sys.argv[1]), 132))
    for layer, rows, pages in ((0, 768, 12), (5, 768, 12), (5, 16, 200)):
        attention(layer, rows, pages)
    experts(768)
    heads(8)


if __name__ == "__main__":
    main()
