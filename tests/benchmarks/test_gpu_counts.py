"""Bytes and operations against numbers worked out by hand."""

import pytest

from benchmarks import gpu_counts
from benchmarks.gpu_counts import Work
from benchmarks.gpu_sizes import RELEASED, TINY, layers_that_fit, with_layers

GEOMETRY = TINY.geometry
"""Hidden 64, 300 ids, 4 heads; layer 0 sliding 2 x 16, layer 1 full 1 x 32; 4 experts, 2 chosen,
inner 40; dense 96."""


def test_a_product():
    assert gpu_counts.product(2, 3, 5) == Work(2 * (6 + 15 + 10), 60)


def test_attention_of_a_canvas():
    # 8 rows of 4 heads of 16 in and out, 28 positions of 2 heads twice; 8 * 28 pairs.
    found = gpu_counts.attention(GEOMETRY, 0, rows=8, keys=28, pairs=224)
    assert found == Work(2 * (2 * 8 * 64 + 2 * 28 * 32), 4 * 224 * 64)


@pytest.mark.parametrize(("count", "committed", "pairs"), [(1, 0, 1), (4, 0, 10), (3, 5, 21)])
def test_causal_pairs(count, committed, pairs):
    assert gpu_counts.causal_pairs(count, committed) == pairs
    assert pairs == sum(committed + row + 1 for row in range(count))


def test_touched_experts_grow_from_a_rows_choices_to_all():
    assert gpu_counts.touched_experts(GEOMETRY, 1) == pytest.approx(2)
    assert gpu_counts.touched_experts(GEOMETRY, 2) == pytest.approx(3)  # 4 * (1 - 1/4)
    assert gpu_counts.touched_experts(RELEASED.geometry, 768) == pytest.approx(128, abs=1e-6)


def test_experts():
    # Three matrices of 64 x 40 of 3 touched experts, 2 rows in and out; 2 rows of 2 experts.
    expected = Work(2 * (3 * 3 * 64 * 40 + 2 * 2 * 64), 6 * 2 * 2 * 64 * 40)
    assert gpu_counts.experts(GEOMETRY, 2) == expected


def test_heads():
    assert gpu_counts.label_head(GEOMETRY, 3) == Work(2 * 64 * 303, 2 * 3 * 64 * 300)
    assert gpu_counts.denoise_head(GEOMETRY, 3) == Work(2 * 64 * 306, 4 * 3 * 64 * 300)


def test_the_released_model_has_the_parameters_it_is_said_to_have():
    """25.2 B, of which 3.8 B are active: facts of its card, not of these formulas."""
    geometry = RELEASED.geometry
    assert gpu_counts.model_parameters(geometry) == pytest.approx(25.2e9, rel=3e-3)
    chosen = [gpu_counts.layer_parameters(geometry, n, 8) for n in range(30)]
    table = geometry.vocab_size * geometry.hidden_size
    assert sum(chosen) + table == pytest.approx(3.8e9, rel=7e-3)


def test_a_step_reads_all_weights_but_the_experts_nobody_chooses():
    geometry = RELEASED.geometry
    everything = 2 * gpu_counts.model_parameters(geometry)
    full = gpu_counts.step_bytes(geometry, rows=10_000, outputs=10_000)
    assert full == pytest.approx(everything, rel=1e-9)
    # The last layer's 128 experts of 3 * 2816 * 704 numbers, of which one row chooses 8.
    spared = 2 * 120 * 3 * 2816 * 704
    assert full - gpu_counts.step_bytes(geometry, 10_000, 1) == pytest.approx(spared, rel=1e-6)


def test_a_steps_operations_are_two_for_each_active_weight_and_row():
    tiny = 2 * (64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96 + 2 * 3 * 64 * 40 + 64 * 4)
    tiny += 2 * (64 * 32 * (2 * 4 + 1) + 3 * 64 * 96 + 2 * 3 * 64 * 40 + 64 * 4)
    assert gpu_counts.step_flops(GEOMETRY, 5) == 5 * tiny


@pytest.mark.parametrize(
    ("gib", "layers"), [(8, 0), (16, 6), (24, 6), (48, 18), (80, 30), (139, 30)]
)
def test_whole_patterns_of_layers_are_chosen_by_free_memory(gib, layers):
    assert layers_that_fit(RELEASED.geometry, gib) == layers


def test_chosen_layers_fit_and_one_more_pattern_would_not():
    for gib in range(1, 90):
        layers = layers_that_fit(RELEASED.geometry, gib)
        if layers:
            one = with_layers(RELEASED, layers).geometry
            assert 2 * gpu_counts.model_parameters(one) <= 0.75 * gib * 2**30
            assert not one.is_sliding(layers - 1)
        if layers < 30:
            more = with_layers(RELEASED, layers + 6).geometry
            assert 2 * gpu_counts.model_parameters(more) > 0.75 * gib * 2**30
