"""Arrivals: drawn the same for the same seed, recorded ones checked line by line."""

import json
from itertools import pairwise

import numpy as np
import pytest

from triton_backend.simulation.arrivals import (
    WORKLOADS,
    Arrival,
    TraceError,
    recorded,
    synthetic,
)
from triton_backend.simulation.setting import DIFFUSION_GEMMA, LLADA


def drawn(workload="sharegpt", model=LLADA, rate=5.0, count=5000, seed=1):
    return list(synthetic(WORKLOADS[workload], model, rate, count, seed))


def test_the_same_seed_draws_the_same_and_another_does_not():
    assert drawn(seed=3) == drawn(seed=3)
    assert drawn(seed=3) != drawn(seed=4)


def test_arrivals_are_poisson_of_the_rate():
    gaps = np.diff([one.at for one in drawn()])
    assert (gaps > 0).all()
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 5, rel=0.1)


@pytest.mark.parametrize(
    ("workload", "median", "p99"), [("sharegpt", 795, 2007), ("arxiv", 2827, 3923)]
)
def test_prompts_have_the_published_lengths(workload, median, p99):
    prompts = [one.prompt for one in drawn(workload)]
    assert np.median(prompts) == pytest.approx(median, rel=0.03)
    assert np.percentile(prompts, 99) == pytest.approx(p99, rel=0.08)


def test_outputs_have_the_published_median_in_canvases():
    blocks = [len(one.steps) for one in drawn()]
    assert np.median(blocks) == pytest.approx(596 / 32, abs=1)
    steps = [n for one in drawn() for n in one.steps]
    assert np.mean(steps) == pytest.approx(9.5, rel=0.02)


def test_whatever_is_drawn_can_be_served():
    for model in (LLADA, DIFFUSION_GEMMA):
        for one in drawn("arxiv", model):
            assert one.prompt + len(one.steps) * model.canvas <= model.limits.max_context
            assert all(model.least_steps <= n <= model.most_steps for n in one.steps)


def test_a_mix_has_its_share_of_reads_of_one_step_and_groups_that_begin_alike():
    mixed = drawn("mixed", DIFFUSION_GEMMA)
    reads = [one for one in mixed if one.is_read]
    assert len(reads) / len(mixed) == pytest.approx(0.8, abs=0.03)
    assert all(one.steps == (1,) for one in reads)
    assert {one.group for one in mixed} == set(range(1, 17))
    assert all(one.shared == min(256, one.prompt) for one in mixed)


def lines(tmp_path, *entries):
    path = tmp_path / "trace.jsonl"
    texts = (one if isinstance(one, str) else json.dumps(one) for one in entries)
    path.write_text("\n".join(texts) + "\n")
    return path


def test_a_trace_is_read_as_it_was_recorded(tmp_path):
    path = lines(
        tmp_path,
        {"at": 0.5, "prompt": 100, "output": 300},
        "",
        {"at": 0.5, "prompt": 40, "questions": 3, "group": 2, "shared": 64},
        {"at": 1, "prompt": 7, "steps": [4, 5]},
    )
    first, *others = recorded(path, DIFFUSION_GEMMA)
    assert (first.at, first.prompt, len(first.steps), first.is_read) == (0.5, 100, 2, False)
    assert others == [
        Arrival(0.5, 40, (1, 1, 1), True, 2, 40),
        Arrival(1.0, 7, (4, 5)),
    ]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{", "not JSON"),
        ("[]", "an object with at, prompt"),
        ({"at": 1}, "an object with at, prompt"),
        ({"at": 1, "prompt": 3, "outptu": 2}, "an object with at, prompt"),
        ({"at": -1, "prompt": 3, "output": 2}, "at is -1"),
        ({"at": True, "prompt": 3, "output": 2}, "at is True"),
        ({"at": "1", "prompt": 3, "output": 2}, "at is '1'"),
        ({"at": 1, "prompt": 0, "output": 2}, "prompt is 0"),
        ({"at": 1, "prompt": 2.5, "output": 2}, "prompt is 2.5"),
        ({"at": 1, "prompt": 3}, "output is 0"),
        ({"at": 1, "prompt": 3, "output": None}, "output is None"),
        ({"at": 1, "prompt": 3, "questions": -1}, "questions is -1"),
        ({"at": 1, "prompt": 3, "steps": []}, r"steps is \[\]"),
        ({"at": 1, "prompt": 3, "steps": [0]}, r"steps is \[0\]"),
        ({"at": 1, "prompt": 9000, "output": 1}, "9256 tokens are asked for.* takes 8192"),
        ({"at": 1, "prompt": 1, "output": 9000}, "tokens are asked for"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path, entry, says):
    path = lines(tmp_path, {"at": 0, "prompt": 1, "output": 1}, entry)
    with pytest.raises(TraceError, match=rf"trace.jsonl:2: .*{says}"):
        list(recorded(path, DIFFUSION_GEMMA))


def test_a_trace_that_goes_back_in_time_is_refused(tmp_path):
    path = lines(tmp_path, {"at": 2, "prompt": 1, "output": 1}, {"at": 1, "prompt": 1, "output": 1})
    with pytest.raises(TraceError, match="at is 1.0, behind a later 2.0"):
        list(recorded(path, DIFFUSION_GEMMA))


def test_times_never_fall_across_what_is_drawn_at_once():
    assert all(one.at <= later.at for one, later in pairwise(drawn(count=9000)))
