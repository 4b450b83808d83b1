"""The GPU's denoise head, interpreted, against its reference: sizes, chunks, ties, broken rows."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plugins import reference
from plugins.gpu.device import Gpu
from plugins.gpu.heads_plan import plan_denoise_head
from tests.plugins.denoise_cases import Case, make_case

OP = "plugins.gpu.heads_op.denoise_head"
# As for the CPU kernel: logits up to 30 in size carry a unit in the last place of 2e-6, sums in
# another order and the tangent add a few, and a temperature divides that error with the logits.
LOGIT = 1e-5
# The soft embedding rounds once, and each power twice, as tensor cores take them; the interpreter
# cuts bf16 off where a GPU rounds, so every power may be two steps (2^-8) too small.
STEP = {torch.float32: 1e-5, torch.bfloat16: 2.4e-2, torch.float16: 3e-3}

SIZES = [(1, 1), (2, 5), (31, 63), (33, 64), (1, 65), (16, 127), (17, 128), (2, 129), (65, 260)]
# fp16 has the tiles of bf16.
CASES = [
    *((*size, dtype) for size in SIZES for dtype in (torch.float32, torch.bfloat16)),
    *((*size, torch.float16) for size in SIZES[-2:]),
]


def check(interpreter, case: Case, found: tuple[Tensor, ...] | None = None) -> None:
    found = found or interpreter.run(OP, *vars(case).values())
    argmax, candidate, entropy, log_prob, candidate_log_prob, soft = found
    theirs = case.expected()
    error = LOGIT * (1 + 1 / case.temperature)
    logits, log_probs = case.logits(), case.log_probs()
    rows = torch.arange(len(argmax))
    # Where two ids are closer than the error, either may be chosen.
    assert (logits.max(-1).values - logits[rows, argmax.long()] <= LOGIT).all()
    noisy = log_probs + reference.gumbel(case.draws, len(case.embedding))
    assert (noisy.max(-1).values - noisy[rows, candidate.long()] <= 2 * error).all()
    assert ((entropy - theirs[2]).abs() <= 16 * error).all()
    torch.testing.assert_close(log_prob, theirs[3], atol=2 * LOGIT, rtol=1e-5)
    chosen = log_probs[rows, candidate.long()]
    assert ((candidate_log_prob - chosen).abs() <= 2 * error + 1e-5 * chosen.abs()).all()
    table = case.scale * case.embedding.double().abs()
    bound = 4 * error[:, None] * table.max() + STEP[soft.dtype] * (log_probs.exp() @ table)
    assert ((soft.float() - theirs[5].float()).abs() <= bound).all()


@pytest.mark.parametrize(("rows", "vocabulary", "dtype"), CASES)
def test_the_head_equals_the_reference(interpreter, rows, vocabulary, dtype):
    """Around tiles of rows and of ids, and Philox blocks, in each type."""
    check(interpreter, make_case(rows, vocabulary, dtype=dtype))


@pytest.mark.parametrize("hidden", [2, 30, 130])
def test_any_hidden_size(interpreter, hidden):
    check(interpreter, make_case(5, 200, hidden))


@pytest.mark.parametrize("temperature", [0.01, 0.4, 10.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_flat_and_peaked_rows_at_any_temperature(interpreter, scale, temperature):
    check(interpreter, make_case(4, 200, 64, scale, (temperature, temperature)))


def by_chunks(interpreter, case: Case, chunk: int) -> tuple[Tensor, ...]:
    """The results with `chunk` tiles of 64 ids to a chunk, and more than one block of columns."""
    sizes = (case.hidden.shape[1], len(case.embedding))
    plan = plan_denoise_head(sizes, case.softcap, case.scale, "float32", 4, Gpu(80))
    plan = replace(plan, chunk=chunk, columns=32)
    inputs = (case.hidden, case.embedding, case.temperature, case.draws)
    return interpreter.run("plugins.gpu.heads_op.run_denoise", *inputs, plan)


@pytest.mark.parametrize("chunk", [1, 2, 5, 6])
def test_chunks_are_merged_to_the_same(interpreter, chunk):
    """Five tiles: chunks of one tile, uneven chunks, one chunk, one with room to spare."""
    case = make_case(4, 300)
    found = by_chunks(interpreter, case, chunk)
    check(interpreter, case, found)
    assert torch.equal(found[1], interpreter.run(OP, *vars(case).values())[1])


@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("ids", [[5, 9], [63, 64], [70, 71, 290], [299]])
def test_the_lowest_id_wins_a_tie_of_logits(interpreter, ids, chunk):
    """Within a tile, across tiles of a chunk and across chunks."""
    case = make_case(1, 300)
    case.embedding[:] = 0
    case.embedding[ids] = case.hidden[0]
    assert by_chunks(interpreter, case, chunk)[0].tolist() == [ids[0]]


@pytest.mark.parametrize("vocabulary", [60, 700])
def test_candidates_of_equal_logits_follow_from_the_words_alone(interpreter, vocabulary):
    case = make_case(16, vocabulary)
    case.hidden[:] = 0
    expected = reference.gumbel(case.draws, vocabulary).argmax(-1)
    assert torch.equal(interpreter.run(OP, *vars(case).values())[1], expected.int())


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_row_is_not_hidden_and_disturbs_no_other(interpreter, broken):
    """Infinities of both signs make some logits NaN and put the others at the cap."""
    case = make_case(5, 200)
    whole = interpreter.run(OP, *vars(case).values())
    hidden = case.hidden.clone()
    hidden[[1, 4], 3] = broken
    hidden[[1, 4], 4] = -broken
    found = interpreter.run(OP, *vars(replace(case, hidden=hidden)).values())
    assert found[2].isnan().nonzero().flatten().tolist() == [1, 4]
    for ours, theirs in zip(found, whole, strict=True):
        assert torch.equal(ours[[0, 2, 3]], theirs[[0, 2, 3]])
    for ids in found[:2]:
        assert ((ids >= 0) & (ids < 200)).all()


@pytest.mark.parametrize("broken", [0, 70, 199])
def test_a_broken_embedding_breaks_every_row(interpreter, broken):
    case = make_case(3, 200)
    case.embedding[broken, 7] = torch.nan
    argmax, candidate, entropy, *_ = interpreter.run(OP, *vars(case).values())
    assert entropy.isnan().all()
    assert ((argmax >= 0) & (argmax < 200) & (candidate >= 0) & (candidate < 200)).all()


def test_a_row_does_not_depend_on_what_stands_in_others_bitwise(interpreter):
    """Rows keep their places: the interpreter's products order sums by place, as no GPU does."""
    case, other = make_case(40, 200), make_case(39, 200)
    batch = interpreter.run(OP, *vars(case).values())
    names = ("hidden", "temperature", "draws")
    mixed = {name: torch.cat([getattr(other, name), getattr(case, name)[39:]]) for name in names}
    found = interpreter.run(OP, *vars(replace(case, **mixed)).values())
    for ours, theirs in zip(found, batch, strict=True):
        assert torch.equal(ours[39], theirs[39])


def test_zero_rows(interpreter):
    found = interpreter.run(OP, *vars(make_case(0, 100)).values())
    assert [list(out.shape) for out in found] == [[0]] * 5 + [[0, 64]]
