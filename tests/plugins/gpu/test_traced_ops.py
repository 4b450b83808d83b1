"""The ops as launches in an exported program: right for every number of rows, each tier's included.

Programs are exported once, at 7 rows or fewer, and run in the interpreter at others.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from plugins import reference
from plugins.gpu import heads_plan
from plugins.gpu.device import Gpu
from plugins.gpu.tiers import Build
from plugins.spec import Phase
from tests.plugins import attention_cases, denoise_cases
from tests.plugins.attention_cases import Heads, Part
from tests.plugins.gpu.test_attention import TOLERANCE as ATTENTION
from tests.plugins.gpu.test_denoise_head import check as check_denoise
from tests.plugins.gpu.test_experts import TOLERANCE as EXPERTS
from tests.plugins.gpu.traced_program import export, interpreted, kernel_of, launches
from tests.plugins.test_experts import Size, make
from tests.plugins.test_label_head import make as make_label

PREFILL, DENOISE, COMMIT = Phase
BUILD = Build(Gpu(90, 4), rows=256, positions=2048)
"""So few processors that the keys of 8 rows are split in four, of 16 in two, of more not at all."""

BF16 = torch.bfloat16
"""Products in fp32 have tiles of one height; the whole model's test runs those."""

ROWS = Dim("rows", min=2, max=65536)
ROW = {0: ROWS}

# What each kernel writes. Torch also takes for written what tells a kernel where to write, which
# are the segments and the table of the attention's inputs, and the experts' starts.
WRITTEN = {
    "page_write_kernel": {"pool"},
    "attend_kernel": {"out"},
    "attend_split_kernel": {"outputs_0", "outputs_1"},
    "merge_kernel": {"out"},
    "sort_kernel": {"order", "places", "starts"},
    "gate_up_kernel": {"inner"},
    "down_kernel": {"produced"},
    "combine_kernel": {"out"},
    "label_fold_kernel": {"label_logits", "folds"},
    "label_merge_kernel": {"lse", "entropy", "argmax"},
    "denoise_fold_kernel": {"outputs_0", "outputs_1"},
    "denoise_merge_kernel": {"state", "factors"},
    "denoise_soft_kernel": {"sums"},
    "denoise_finish_kernel": {f"outputs_{n}" for n in range(6)},
}
TELLS_WHERE = {"attend": {"inputs_2", "inputs_3"}, "gate_up": {"starts"}, "down": {"starts"}}
TELLS_WHERE["attend_split"] = TELLS_WHERE["attend"]


class Op(nn.Module):
    """One op, with its numbers fixed."""

    def __init__(self, name: str, *numbers: float) -> None:
        super().__init__()
        self.name, self.numbers = name, numbers

    def forward(self, *tensors: Tensor) -> Any:
        return getattr(torch.ops.dg, self.name)(*tensors, *self.numbers)


def traced(name: str, tensors: list[Tensor], numbers: list[float], shapes: Any) -> ExportedProgram:
    program = export(Op(name, *numbers), BUILD, tuple(tensors), {"tensors": shapes})
    for launch in launches(program):
        name, written = kernel_of(launch), set(launch.kwargs["tensors_to_clone"])
        told = TELLS_WHERE.get(name.removesuffix("_kernel"), set())
        assert WRITTEN[name] <= written <= WRITTEN[name] | told
    return program


def counts(program: ExportedProgram) -> dict[str, int]:
    names = [kernel_of(launch).removesuffix("_kernel") for launch in launches(program)]
    return {name: names.count(name) for name in names}


def test_experts_by_blocks_of_every_height(interpreter):
    """8 experts with 2 choices: up to 32 rows, up to 64, and more."""
    program = traced("routed_experts", make(Size(7), BF16), [], (ROW, ROW, ROW, None, None))
    assert counts(program) == {"sort": 1, "gate_up": 3, "down": 3, "combine": 1}
    for rows in (32, 33, 65):
        arguments = make(Size(rows), BF16)
        with interpreted(interpreter):
            found = program.module()(*arguments)
        torch.testing.assert_close(found, reference.routed_experts(*arguments), **EXPERTS[BF16])


def test_the_label_head_by_blocks_of_every_height(interpreter):
    """Up to 16 rows, and more."""
    *example, softcap = in_bf16(make_label(4, 300))
    shapes = (ROW, None, {0: ROWS, 1: Dim("labels", min=2, max=4096)})
    program = traced("label_head", example, [softcap], shapes)
    assert counts(program) == {"label_fold": 2, "label_merge": 1}
    for rows in (16, 17):
        arguments = in_bf16(make_label(rows, 300))
        with interpreted(interpreter):
            found = program.module()(*arguments[:-1])
        for ours, theirs in zip(found, reference.label_head(*arguments), strict=True):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)


def in_bf16(arguments: list) -> list:
    hidden, table, *rest = arguments
    return [hidden.to(BF16), table.to(BF16), *rest]


def test_the_denoise_head_over_several_chunks(interpreter, monkeypatch):
    monkeypatch.setattr(heads_plan, "_CHUNK_TILES", 2)
    *example, softcap, scale = vars(denoise_cases.make_case(4, 600, dtype=BF16)).values()
    program = traced("denoise_head", example, [softcap, scale], (ROW, None, ROW, ROW))
    each = {"denoise_fold": 3 * 2, "denoise_merge": 3, "denoise_soft": 3 * 2}
    assert counts(program) == {**each, "denoise_finish": 1}
    for rows in (2, 17):
        case = denoise_cases.make_case(rows, 600, dtype=BF16)
        with interpreted(interpreter):
            found = program.module()(case.hidden, case.embedding, case.temperature, case.draws)
        check_denoise(interpreter, case, found)


@pytest.mark.parametrize("window", [0, 24])
def test_attention_by_every_number_of_splits(interpreter, window):
    """Over few and over many positions, in each tier, with rows of no segment; the pool too."""
    heads = Heads(4, 1, 16)
    *example, _ = attention_cases.make_case([[Part(PREFILL, 0, 5)]] * 2, heads).arguments()
    sizes = {name: Dim(name, min=1, max=65536) for name in ("pool", "segments", "tables", "pages")}
    shapes = (
        *(ROW, ROW, ROW, {0: sizes["pool"]}, ROW),
        *({0: sizes["segments"]}, {0: sizes["tables"], 1: sizes["pages"]}),
    )
    program = traced("mixed_mask_paged_attention", example, [window], shapes)
    split = {"attend_split": 2, "merge": 2} if window == 0 else {}
    assert counts(program) == {"page_write": 1, **split, "attend": 1}
    for requests in (
        [[Part(DENOISE, 700, 2)], [Part(COMMIT, 33, 3)]],
        [[Part(PREFILL, 1100, 7), Part(DENOISE, 1107, 4)]],
        [[Part(PREFILL, 600, 20), Part(DENOISE, 620, 16)], [Part(COMMIT, 37, 16)]],
    ):
        case = attention_cases.make_case(requests, heads, window)
        theirs, (*ours, _) = case.arguments(), case.arguments()
        expected = reference.mixed_mask_paged_attention(*theirs)
        with interpreted(interpreter):
            found = program.module()(*ours)
        torch.testing.assert_close(found, expected, **ATTENTION[torch.float32])
        torch.testing.assert_close(ours[3], theirs[3], rtol=0, atol=0, equal_nan=True)


def test_an_op_that_is_not_ours_is_left_alone():
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) + 1

    program = export(Plain(), BUILD, (torch.ones(3),), (ROW,))
    assert torch.equal(program.module()(torch.tensor([-1.0, 2.0])), torch.tensor([1.0, 3.0]))
    assert not launches(program)
