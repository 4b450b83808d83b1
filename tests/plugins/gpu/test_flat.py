"""Entries to kernels: tuples spread, the plan a text, and source that stands for itself."""

import inspect

import pytest

from plugins.gpu.denoise_fold import denoise_fold_kernel
from plugins.gpu.flat import flat, spread


def test_tuples_are_spread_in_their_place():
    assert spread((1, (2, 3), 4, (5,))) == ((1, 2, 3, 4, 5), (0, 2, 0, 1))


def test_an_entry_takes_what_the_kernel_takes_one_by_one():
    entry = flat(denoise_fold_kernel, (0, 0, 0, 0, 0, 0, 2))
    last = ["outputs_0", "outputs_1", "plan"]
    assert entry.arg_names == [*denoise_fold_kernel.arg_names[:6], *last]
    assert entry.params[-1].is_constexpr
    assert entry is flat(denoise_fold_kernel, (0, 0, 0, 0, 0, 0, 2))


def test_python_finds_an_entrys_source():
    """Triton and torch read it, and copy it elsewhere."""
    entry = flat(denoise_fold_kernel, (0, 0, 0, 0, 0, 0, 2))
    assert "denoise_fold_kernel(hidden" in inspect.getsource(entry.fn)
    assert inspect.getsourcefile(entry.fn) == "<denoise_fold_kernel_flat>"


def test_another_number_of_arguments_is_refused():
    with pytest.raises(ValueError, match="not 3 and plan"):
        flat(denoise_fold_kernel, (0, 0, 0))
