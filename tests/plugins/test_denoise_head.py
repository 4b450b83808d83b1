"""The denoise head against its reference: sizes, temperatures, ties, broken rows, bad arguments."""

from dataclasses import replace

import pytest
import torch

from plugins import reference
from tests.plugins.denoise_cases import Case, make_case

# Logits up to 30 in size carry a unit in the last place of 2e-6; sums in another order add a few.
# A temperature divides that error with the logits; an entropy sums it over the likely ids.
LOGIT = 1e-5
# bf16 soft embeddings are sums in fp32 that round once, so they differ by one step (2^-8) at most.
STEP = {torch.float32: 1e-5, torch.bfloat16: 8e-3}


def check(case: Case, entropy_factor: float = 4.0) -> None:
    argmax, candidate, entropy, log_prob, candidate_log_prob, soft = case.run()
    theirs = case.expected()
    error = LOGIT * (1 + 1 / case.temperature)
    logits, log_probs = case.logits(), case.log_probs()
    rows = torch.arange(len(argmax))
    # Where two ids are closer than the error, either may be chosen.
    assert (logits.max(-1).values - logits[rows, argmax.long()] <= LOGIT).all()
    noisy = log_probs + reference.gumbel(case.draws, len(case.embedding))
    assert (noisy.max(-1).values - noisy[rows, candidate.long()] <= 2 * error).all()
    assert ((entropy - theirs[2]).abs() <= entropy_factor * error).all()
    torch.testing.assert_close(log_prob, theirs[3], atol=2 * LOGIT, rtol=1e-5)
    chosen = log_probs[rows, candidate.long()]
    assert ((candidate_log_prob - chosen).abs() <= 2 * error + 1e-5 * chosen.abs()).all()
    size = case.scale * case.embedding.float().abs().max()
    bound = 4 * error[:, None] * size + STEP[soft.dtype] * theirs[5].float().abs()
    assert ((soft.float() - theirs[5].float()).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 31, 33, 63, 64, 65, 130])
@pytest.mark.parametrize(
    "vocabulary", [1, 2, 3, 4, 5, 111, 112, 113, 255, 256, 257, 3584, 3585, 4097]
)
def test_the_head_equals_the_reference(rows, vocabulary, dtype):
    """Around blocks of rows, Philox blocks, tiles and the number of splits."""
    check(make_case(rows, vocabulary, dtype=dtype))


@pytest.mark.parametrize("hidden", [1, 2, 15, 16, 17, 31, 33, 50, 127, 512])
def test_any_hidden_size(hidden):
    check(make_case(5, 600, hidden))


@pytest.mark.parametrize("hidden", [2, 14, 30, 34, 66, 512])
def test_any_even_hidden_size_in_bf16(hidden):
    check(make_case(5, 600, hidden, dtype=torch.bfloat16))


@pytest.mark.parametrize("temperature", [0.01, 0.1, 0.4, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 100.0])
def test_flat_and_peaked_rows_at_any_temperature(scale, temperature):
    """Entropy runs from log(vocabulary) to zero; most logits of the last scale are at the cap."""
    check(make_case(6, 700, 64, scale, (temperature, temperature)), entropy_factor=16)


def test_a_flat_row_has_the_whole_entropy_and_a_mean_for_its_soft_embedding():
    case = make_case(3, 1000)
    case.hidden[:] = 0
    argmax, _, entropy, log_prob, candidate_log_prob, soft = case.run()
    assert argmax.tolist() == [0, 0, 0]
    whole = torch.tensor(1000.0).log().expand(3)
    for found, expected in ((entropy, whole), (log_prob, -whole), (candidate_log_prob, -whole)):
        torch.testing.assert_close(found, expected)
    mean = (case.embedding.mean(0) * case.scale).expand(3, -1)
    torch.testing.assert_close(soft, mean, atol=1e-5, rtol=1e-5)


def test_one_id_alone_is_certain():
    argmax, candidate, entropy, log_prob, candidate_log_prob, soft = make_case(3, 1).run()
    for zero in (argmax, candidate, entropy, log_prob, candidate_log_prob):
        assert not zero.any()
    torch.testing.assert_close(soft, 8 * make_case(3, 1).embedding.expand(3, -1))


@pytest.mark.parametrize("ids", [[5, 9], [111, 112], [300, 301, 8990], [3, 8999], [8999]])
def test_the_lowest_id_wins_a_tie_of_logits(ids):
    """Within a vector, a tile and a split, and across them."""
    case = make_case(3, 9000)
    case.embedding[:] = 0
    case.embedding[ids] = case.hidden[0]
    assert case.rows(slice(0, 1)).run()[0].tolist() == [ids[0]]


@pytest.mark.parametrize("vocabulary", [700, 9000])
def test_the_lowest_id_wins_a_tie_of_candidates(vocabulary):
    """Equal logits leave the draw to the variates alone, of which there are only 2^24."""
    case = make_case(64, vocabulary)
    case.hidden[:] = 0
    expected = reference.gumbel(case.draws, vocabulary).argmax(-1)
    assert torch.equal(case.run()[1], expected.int())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_does_not_depend_on_the_others_bitwise(threads, dtype):
    case = make_case(130, 9000, dtype=dtype)
    batch = case.run()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (slice(0, 1), slice(2, 4), slice(40, 130), [129, 0, 63, 64, 65]):
            for lone, whole in zip(case.rows(rows).run(), batch, strict=True):
                assert torch.equal(lone, whole[rows])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_row_is_not_hidden_and_disturbs_no_other(broken, dtype):
    """Infinities of both signs make some logits NaN and put the others at the cap."""
    case = make_case(70, 3000, dtype=dtype)
    whole = case.run()
    hidden = case.hidden.clone()
    hidden[[1, 69], 3] = broken
    hidden[[1, 69], 4] = -broken
    found = replace(case, hidden=hidden).run()
    intact = [row for row in range(70) if row not in (1, 69)]
    assert found[2].isnan().nonzero().flatten().tolist() == [1, 69]
    for ours, theirs in zip(found, whole, strict=True):
        assert torch.equal(ours[intact], theirs[intact])
    for ids in found[:2]:
        assert ((ids >= 0) & (ids < 3000)).all()


@pytest.mark.parametrize("vocabulary", [1, 3000])
def test_a_broken_embedding_breaks_every_row(vocabulary):
    """Wherever in a tile it lies, and if every logit is NaN."""
    for broken in {0, vocabulary // 2, vocabulary - 1}:
        case = make_case(3, vocabulary)
        case.embedding[broken, 7] = torch.nan
        argmax, candidate, entropy, *_ = case.run()
        assert entropy.isnan().all()
        assert ((argmax >= 0) & (argmax < vocabulary)).all()
        assert ((candidate >= 0) & (candidate < vocabulary)).all()


def test_zero_rows():
    assert [list(out.shape) for out in make_case(0, 300).run()] == [[0]] * 5 + [[0, 64]]


def test_strided_rows():
    case = make_case(12, 300)
    across = replace(case, hidden=case.hidden.T.contiguous().T, draws=case.draws.T.contiguous().T)
    assert all(torch.equal(a, b) for a, b in zip(across.run(), case.run(), strict=True))


def put(row: int, value: float):
    def change(tensor):
        tensor = tensor.clone()
        tensor.flatten()[row] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("hidden", lambda hidden: hidden[:, :60], r"embedding.size\(1\) is 64"),
        ("hidden", lambda hidden: hidden.double(), "hidden is Double"),
        ("embedding", lambda table: table.bfloat16(), "embedding is BFloat16"),
        ("embedding", lambda table: table[:0], "embedding has no rows"),
        ("embedding", lambda table: table.T.contiguous().T, "embedding has strides"),
        ("temperature", lambda temperature: temperature[:2], r"temperature.size\(0\) is 2"),
        ("temperature", lambda temperature: temperature.double(), "temperature is Double"),
        ("temperature", put(1, 0.0), r"temperature\[1\] is 0"),
        ("temperature", put(1, -1.0), r"temperature\[1\] is -1"),
        ("temperature", put(2, torch.nan), r"temperature\[2\] is nan"),
        ("temperature", put(0, torch.inf), r"temperature\[0\] is inf"),
        ("temperature", put(0, 1e-40), r"temperature\[0\] is 9.99995e-41"),
        ("draws", lambda draws: draws[:2], r"draws.size\(0\) is 2"),
        ("draws", lambda draws: draws[:, :2], r"draws.size\(1\) is 2"),
        ("draws", lambda draws: draws.int(), "draws is Int"),
        ("draws", put(4, -1), r"draws\[1\]\[1\] is -1"),
        ("draws", put(8, 1 << 32), r"draws\[2\]\[2\] is 4294967296"),
        ("softcap", lambda softcap: 0.0, "softcap is 0"),
    ],
)
def test_a_bad_argument_is_named(name, change, message):
    case = make_case(3, 300)
    with pytest.raises(RuntimeError, match=message):
        replace(case, **{name: change(getattr(case, name))}).run()


def test_an_odd_bf16_width_is_refused():
    with pytest.raises(RuntimeError, match="odd width 33"):
        make_case(3, 300, 33, dtype=torch.bfloat16).run()
