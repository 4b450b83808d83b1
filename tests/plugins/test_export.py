"""The ops inside torch.export and an ahead-of-time compiled package."""

import pytest
import torch

from plugins.spec import Phase
from tests.plugins.attention_cases import Case, Heads, Part, make_case

PREFILL, DENOISE, COMMIT = Phase
HIDDEN = 64


class Step(torch.nn.Module):
    """Attention, linear, experts and heads in one graph, with the pool updated in place."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in {
            "wide": (256, HIDDEN),
            "gate_up": (4, 64, HIDDEN),
            "down": (4, HIDDEN, 32),
            "table": (300, HIDDEN),
        }.items():
            self.register_buffer(name, torch.randn(shape, generator=generator) * 0.1)

    def forward(self, x, pool, slots, segments, block_table, ids, labels):
        q = torch.ops.dg.linear(x, self.wide, 256).view(-1, 4, HIDDEN)
        k, v = q[:, :2] * 0.5, q[:, 2:] + 1
        seen = torch.ops.dg.mixed_mask_paged_attention(
            q, k, v, pool, slots, segments, block_table, 24
        )
        mixed = torch.nn.functional.silu(seen.sum(1)) + x
        weights = torch.full(ids.shape, 0.5)
        routed = torch.ops.dg.routed_experts(mixed, ids, weights, self.gate_up, self.down)
        read = torch.ops.dg.label_head(routed + mixed, self.table, labels, 30.0)
        temperature, draws = weights[:, 0] * 2, ids[:, :1].repeat(1, 3)
        denoised = torch.ops.dg.denoise_head(mixed, self.table, temperature, draws, 30.0, 8.0)
        return *read, *denoised


def arguments(requests: list, seed: int) -> list:
    case: Case = make_case(requests, Heads(4, 2, HIDDEN), 24, seed=seed)
    rows = case.q.shape[0]
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 4, (rows, 2), generator=generator)
    labels = torch.randint(0, 300, (rows, 3), generator=generator, dtype=torch.int32)
    x = torch.randn(rows, HIDDEN, generator=generator)
    return [x, case.kv_pool, case.slots, case.segments, case.block_table, ids, labels]


SMALL = [[Part(PREFILL, 5, 20)], [Part(DENOISE, 16, 16)]]
LARGE = [
    [Part(PREFILL, 0, 90), Part(DENOISE, 90, 32)],
    [Part(COMMIT, 40, 16)],
    [Part(DENOISE, 3, 16)],
]


def test_every_op_passes_torchs_own_checks():
    """Schema, fakes and the declared mutation agree with what the kernels do."""
    x, pool, slots, segments, table, ids, labels = arguments(SMALL, 0)
    step = Step()
    case = make_case(SMALL)
    tests = ("test_schema", "test_faketensor")
    calls = {
        "linear": (x, step.wide, 256),
        "routed_experts": (x, ids, torch.ones(ids.shape), step.gate_up, step.down),
        "label_head": (x, step.table, labels, 30.0),
        "denoise_head": (x, step.table, torch.ones(len(x)), ids[:, :1].repeat(1, 3), 30.0, 8.0),
        "mixed_mask_paged_attention": (
            *case.arguments()[:3],
            torch.zeros_like(case.kv_pool),
            *case.arguments()[4:],
        ),
    }
    for name, call in calls.items():
        op = getattr(torch.ops.dg, name).default
        torch.library.opcheck(op, call, test_utils=tests)


@pytest.mark.slow
def test_a_compiled_package_equals_eager_for_any_number_of_rows(tmp_path):
    """Catches a pool that is copied instead of updated, and sizes frozen at export."""
    rows, pages, parts, tables, width = map(torch.export.Dim, ("n", "g", "s", "b", "p"))
    shapes = [
        {0: rows},
        {0: pages},
        {0: rows},
        {0: parts},
        {0: tables, 1: width},
        {0: rows},
        {0: rows},
    ]
    step = Step()
    with torch.no_grad():
        exported = torch.export.export(step, tuple(arguments(SMALL, 0)), dynamic_shapes=shapes)
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "step.pt2")
        )
        compiled = torch._inductor.aoti_load_package(path)
        for requests in (SMALL, LARGE):
            ours, theirs = arguments(requests, 1), arguments(requests, 1)
            for got, expected in zip(compiled(*ours), step(*theirs), strict=True):
                torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(ours[1], theirs[1], atol=1e-5, rtol=1e-5, equal_nan=True)
            assert not torch.equal(ours[1].nan_to_num(), arguments(requests, 1)[1].nan_to_num())
