"""Plans as text: what is written is read back, for every plan there is."""

import pytest

from plugins.gpu import plan_text
from plugins.gpu.device import TARGETS, Gpu
from plugins.gpu.variants import variants


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_plan_reads_back(capability, dtype):
    plans = [variant.plan for variant in variants(dtype, Gpu(capability))]
    assert [plan_text.read(plan_text.write(plan)) for plan in plans] == plans


def test_torch_takes_no_text_for_a_mark_of_alignment():
    from triton.backends.compiler import BaseBackend

    for variant in variants("bfloat16", Gpu(90)):
        assert BaseBackend.parse_attr(plan_text.write(variant.plan)) == []
