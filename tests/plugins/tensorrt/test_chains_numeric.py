"""Every op as its chain of plugins, run as TensorRT runs it, against the op's reference."""

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.gpu import attention_plan, heads_plan
from plugins.gpu.device import Gpu
from plugins.spec import Phase
from plugins.tensorrt.chains import Load
from tests.plugins.attention_cases import PAGE, Heads, Part, make_case
from tests.plugins.denoise_cases import make_case as make_denoise
from tests.plugins.gpu.test_denoise_head import check as check_denoise
from tests.plugins.tensorrt import released
from tests.plugins.test_experts import Size
from tests.plugins.test_experts import make as make_experts
from tests.plugins.test_label_head import make as make_labels

GPU = Gpu(90, 132)
RUN = "tests.plugins.tensorrt.execution.run_chain"
PREFILL, DENOISE, COMMIT = Phase
LAST = 9  # tactic; there are fewer
WHOLE, LONG = Load(256, 4096, 32), Load(16, 64, 128)
"""Contexts of one span of 32 positions, and of several."""

# As for the kernels called by torch: tests/plugins/gpu.
TOLERANCE = {
    torch.float32: {"atol": 2e-5, "rtol": 2e-5},
    torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2},
}
REQUESTS = [
    [Part(PREFILL, 0, PAGE + 1), Part(DENOISE, PAGE + 1, 9)],
    [Part(COMMIT, PAGE - 1, 1), Part(DENOISE, PAGE, 9)],
    [Part(DENOISE, 0, 16)],
]


def run(interpreter, made, inputs: list[Tensor], load: Load = WHOLE, tactic: int = 1):
    """(every tensor by name, plugins in order)."""
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    nodes, _ = released.chain_of(made, dtype, GPU, load)
    tensors = dict(zip(made[0].input, inputs, strict=True))
    content = [node.SerializeToString() for node in nodes]
    return interpreter.run(RUN, content, tensors, GPU, tactic), [node.op_type for node in nodes]


@pytest.mark.parametrize(
    ("window", "load", "dtype", "tactic"),
    [
        (0, WHOLE, torch.float32, 1),
        (0, WHOLE, torch.bfloat16, LAST),
        (0, LONG, torch.float32, LAST),
        (0, LONG, torch.bfloat16, 1),
        (20, LONG, torch.bfloat16, 2),
    ],
    ids=str,
)
def test_attention_and_its_pool(interpreter, monkeypatch, window, load, dtype, tactic):
    """Rows of no segment, whose outputs begin as NaN, must come out as zeros."""
    monkeypatch.setattr(attention_plan, "_LEAST_SPAN", 32)
    case = make_case(REQUESTS, Heads(2, 1, 16), window, dtype, padding=20)
    made = released.attention(2, 1, 16, window=window)
    made[1]["kv_pool"] = (None, ["pages", 2, PAGE, 1, 16])
    found, names = run(interpreter, made, case.arguments()[:-1], load, tactic)
    split = load is LONG and not window
    parts = ["attend_split", "attend_merge"] if split else ["attend"]
    assert names == ["page_write", *parts]
    theirs = case.arguments()
    expected = reference.mixed_mask_paged_attention(*theirs)
    torch.testing.assert_close(found["out"], expected, **TOLERANCE[dtype])
    assert not found["out"][-20:].any()
    torch.testing.assert_close(found["written"], theirs[3], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found["kv_pool"], theirs[3], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "dtype", "tactic"),
    [(1, torch.float32, 1), (33, torch.bfloat16, 1), (33, torch.bfloat16, LAST)],
    ids=str,
)
def test_experts(interpreter, rows, dtype, tactic):
    arguments = make_experts(Size(rows, 5, 2, 40, 24), dtype)
    sizes = len(arguments[3]), arguments[1].shape[1], arguments[0].shape[1], arguments[4].shape[2]
    names = ("x", "ids", "weights", "gate_up", "down")
    given = dict(zip(names, arguments, strict=True))
    given["ids"] = given["ids"].long()
    order = [given[name] for name in names]
    made = released.experts(*sizes)
    made[0].input[:] = names
    found, plugins = run(interpreter, made, order, tactic=tactic)
    assert plugins == ["expert_sort", "expert_gate_up", "expert_down", "expert_combine"]
    expected = reference.routed_experts(*arguments)
    torch.testing.assert_close(found["out"], expected, **TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("rows", "vocabulary", "dtype", "tactic"),
    [
        *((1, 1, torch.float32, 1), (16, 64, torch.float32, 1), (17, 260, torch.float32, 1)),
        *((1, 130, torch.bfloat16, 1), (17, 260, torch.bfloat16, 2)),
    ],
    ids=str,
)
def test_the_label_head(interpreter, rows, vocabulary, dtype, tactic):
    hidden, table, labels, softcap = make_labels(rows, vocabulary)
    inputs = [hidden.to(dtype), table.to(dtype), labels]
    made = released.label_head(vocabulary, hidden.shape[1], softcap)
    made[1]["labels"] = (made[1]["labels"][0], ["rows", 5])
    found, plugins = run(interpreter, made, inputs, tactic=tactic)
    assert plugins == ["label_fold", "label_merge"]
    expected = reference.label_head(*inputs, softcap)
    for name, theirs in zip(made[0].output, expected, strict=True):
        # Logits of either type are summed in fp32, so only the order of sums differs.
        torch.testing.assert_close(found[name], theirs, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "vocabulary", "chunk", "dtype", "tactic"),
    [
        (1, 5, 256, torch.float32, 1),
        (17, 260, 2, torch.float32, 1),
        (3, 320, 1, torch.float32, 1),
        (3, 260, 2, torch.bfloat16, 1),
        (3, 260, 2, torch.bfloat16, LAST),
    ],
    ids=str,
)
def test_the_denoise_head(interpreter, monkeypatch, rows, vocabulary, chunk, dtype, tactic):
    """One chunk, whole and partial chunks, chunks of a single tile."""
    monkeypatch.setattr(heads_plan, "_CHUNK_TILES", chunk)
    case = make_denoise(rows, vocabulary, dtype=dtype)
    made = released.denoise_head(vocabulary, 64, case.softcap, case.scale)
    inputs = [case.hidden, case.embedding, case.temperature, case.draws]
    found, plugins = run(interpreter, made, inputs, tactic=tactic)
    tiles = -(-vocabulary // (64 if dtype == torch.float32 else 128))
    chunks = -(-tiles // chunk)
    assert plugins == ["denoise_fold", "denoise_merge", "denoise_soft"] * chunks + [
        "denoise_finish"
    ]
    check_denoise(interpreter, case, tuple(found[name] for name in made[0].output))
