"""A step becomes arrays: rows in place, canvases on scratch pages, sizes never below two."""

import time

import numpy as np

from plugins.spec import Phase
from tests.triton_backend.fakes import PAGE, make_denoising
from triton_backend.core import PROMPT, Segment, Step
from triton_backend.denoise import CanvasState
from triton_backend.kv_cache import Pages
from triton_backend.pack import pack


def both(pages) -> Pages:
    return Pages(tuple(pages), tuple(pages))


def prompt_segment(tokens, committed, pages, key=0):
    return Segment(key, PROMPT, Phase.PREFILL, tuple(tokens), committed, both(pages))


def canvas_segment(tokens, committed, pages, slots=(0,), labels=((1,),), key=0):
    columns = max(len(row) for row in labels)
    return Segment(
        key, 0, Phase.DENOISE, tuple(tokens), committed, both(pages), tuple(slots), labels, columns
    )


def pack_them(*segments):
    return pack(Step(segments), page_size=PAGE)


def test_a_fused_read_lies_row_behind_row():
    packed = pack_them(
        prompt_segment([10, 11, 12, 13, 14], 0, [7, 3]),
        canvas_segment([20, 21, 22], 5, [7, 3, 9], slots=(2, 0), labels=((1, 2), (5,))),
    )
    assert packed.token_ids.tolist() == [10, 11, 12, 13, 14, 20, 21, 22]
    assert packed.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert packed.phases.tolist() == [0] * 5 + [1] * 3
    assert packed.slots_full.tolist() == [28, 29, 30, 31, 12, 36, 37, 38]
    assert packed.slots_sliding.tolist() == packed.slots_full.tolist()
    assert packed.segments.tolist() == [[0, 5, 0, 0, 0], [5, 3, 1, 5, 1]]
    assert packed.table_full.tolist() == [[7, 3, -1], [7, 3, 9]]
    assert packed.output_rows.tolist() == [7, 5]
    assert packed.label_ids.tolist() == [[1, 2], [5, -1]]


def test_a_chunk_continues_in_the_middle_of_a_page():
    packed = pack_them(prompt_segment([1, 2, 3], 6, [5, 4, 8]))
    assert packed.positions.tolist() == [6, 7, 8]
    assert packed.slots_full.tolist() == [18, 19, 32]


def test_a_canvas_after_a_full_page_and_after_nothing_starts_a_page_of_its_own():
    packed = pack_them(canvas_segment([1, 2], 4, [6, 2]), canvas_segment([3, 4], 0, [1], key=1))
    assert packed.slots_full.tolist() == [8, 9, 4, 5]
    assert packed.positions.tolist() == [4, 5, 0, 1]


def test_every_dynamic_size_is_at_least_two_and_what_is_added_is_inert():
    packed = pack_them(prompt_segment([5], 0, [3]))
    assert packed.token_ids.tolist() == [5, 0]
    assert packed.slots_full.tolist() == [12, -1]
    assert packed.phases.tolist() == [Phase.PREFILL] * 2
    assert packed.segments.tolist()[1] == [0, 0, 0, 0, 0]
    assert packed.table_full.shape == (2, 2)
    assert packed.output_rows.tolist() == [0, 0]
    assert len(packed.label_ids) == len(packed.temperature) == 0


def test_types_are_those_of_the_engine():
    packed = pack_them(prompt_segment([1], 0, [0]), canvas_segment([2], 1, [0, 1]))
    wide = ("token_ids", "positions", "slots_sliding", "slots_full", "output_rows")
    narrow = ("phases", "segments", "table_sliding", "table_full", "label_ids")
    assert {getattr(packed, name).dtype for name in wide} == {np.dtype(np.int64)}
    assert {getattr(packed, name).dtype for name in narrow} == {np.dtype(np.int32)}
    assert all(getattr(packed, name).flags.c_contiguous for name in (*wide, *narrow))


def test_a_full_step_packs_in_about_a_millisecond():
    """16 reads of 128 + 32 rows. The bound is generous: it must hold on a loaded machine."""
    segments = []
    for key in range(16):
        pages = range(key * 12, key * 12 + 10)
        segments.append(prompt_segment(range(128), 0, pages, key))
        labels = ((1, 2, 3),) * 3
        segments.append(canvas_segment(range(32), 128, pages, (1, 2, 3), labels, key))
    step = Step(tuple(segments))
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        packed = pack(step, page_size=16)
        seconds.append(time.perf_counter() - started)
    assert len(packed.token_ids) == 2560
    assert min(seconds) < 0.005


def test_each_canvas_takes_its_own_soft_vectors_and_a_first_step_takes_none():
    """B22: self-conditioning is lost, or a neighbour's is taken."""
    denoising = make_denoising(seed=2**64 - 1, steps=4)

    def canvas(key, soft, steps):
        state = CanvasState(np.zeros(2, np.int64), np.zeros(2, np.bool_), steps=steps, soft=soft)
        return Segment(
            key, 0, Phase.DENOISE, (5, 6), 0, both([key]), denoising=denoising, state=state
        )

    first, second = np.full((2, 8), 1.0), np.full((2, 8), 2.0)
    packed = pack_them(canvas(1, first, 1), canvas(2, None, 0), canvas(3, second, 2))
    assert packed.soft_parts[0] is first
    assert packed.soft_parts[1] is second
    assert packed.soft_index.tolist() == [2, 3, 0, 0, 4, 5]
    assert packed.output_rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert packed.draws.tolist() == [[-1, p, s] for s in (1, 0, 2) for p in (0, 1)]
    assert packed.temperature.tolist() == [denoising.temperature(s) for s in (1, 1, 0, 0, 2, 2)]
