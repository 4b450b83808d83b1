"""A generation's canvases: what is kept, where it ends, what is committed, what is told."""

import numpy as np
import pytest

from tests.triton_backend.fakes import VOCAB, decode, make_denoising, make_generation
from triton_backend.core import FinishReason
from triton_backend.denoise import CanvasState
from triton_backend.writing import Writing

STOP_IDS = frozenset({1, 50, 60})


def writing(context=128, **changes):
    request = make_generation(0, prompt=6, **{"stop_ids": STOP_IDS, **changes})
    return Writing(request, decode, VOCAB, context)


def finished(ids, steps=3, log_probs=None):
    """A canvas of four tokens that has just stopped."""
    numbers = np.arange(len(ids), dtype=np.float32)
    return CanvasState(
        ids=np.zeros(len(ids), np.int64),
        pinned=np.zeros(len(ids), np.bool_),
        steps=steps,
        argmax=np.array(ids, np.int64),
        log_probs=-numbers if log_probs is None else np.array(log_probs, np.float32),
        entropy=numbers,
        finished=True,
    )


def write(work, *canvases):
    """Feeds finished canvases in until it is done; the pieces."""
    pieces = []
    for ids in canvases:
        (canvas,) = work.pending()
        pieces += work.record(canvas, finished(ids))
    return pieces


@pytest.mark.parametrize("stop", sorted(STOP_IDS))
@pytest.mark.parametrize("position", [0, 2, 3])
def test_text_ids_and_log_probs_end_before_any_stop_id_and_nothing_after_it_is_encoded(
    stop, position
):
    """B16, B17: one stop id of several is honoured, or garbage behind it leaks out."""
    work = writing(max_tokens=100)
    canvas = [20, 21, 22, 23]
    canvas[position] = stop
    pieces = write(work, [10, 11, 12, 13], canvas)
    kept = (10, 11, 12, 13, *canvas[:position])
    written = work.written
    assert written.token_ids == kept
    assert written.text == decode(kept)
    assert written.finish_reason is FinishReason.STOP
    assert len(written.log_probs) == len(kept)
    assert [piece.token_ids for piece in pieces] == [kept[:4], kept[4:]]
    assert work.context_ids == (*work.request.prompt_ids, 10, 11, 12, 13)
    assert not list(work.pending())


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 8])
def test_never_more_than_max_tokens(limit):
    """B14: the last canvas is not trimmed."""
    work = writing(max_tokens=limit)
    canvases = [[10 + n, 11, 12, 13] for n in range(-(-limit // 4))]
    write(work, *canvases)
    assert len(work.written.token_ids) == limit
    assert work.written.finish_reason is FinishReason.LENGTH
    assert work.written.steps == (3,) * len(canvases)


def test_a_stop_id_right_behind_the_last_token_is_a_stop_and_one_beyond_is_not():
    for canvas, reason in (([10, 11, 1, 13], "stop"), ([10, 11, 12, 1], "length")):
        work = writing(max_tokens=2)
        write(work, canvas)
        assert work.written.token_ids == (10, 11)
        assert work.written.finish_reason.value == reason


def test_a_stop_word_may_span_two_canvases_and_is_never_shown():
    word = decode([13, 20])
    work = writing(max_tokens=100, stop_words=("~never~", word))
    pieces = write(work, [10, 11, 12, 13], [20, 21, 22, 23])
    assert [piece.text for piece in pieces] == [decode([10, 11, 12]), ""]
    assert work.written.text == decode([10, 11, 12])
    assert work.written.token_ids == (10, 11, 12, 13, 20)
    assert len(work.written.log_probs) == 5
    assert work.written.finish_reason is FinishReason.STOP


def test_what_was_held_back_for_a_stop_word_comes_with_the_end():
    work = writing(max_tokens=4, stop_words=(decode([13, 20]),))
    (piece,) = write(work, [10, 11, 12, 13])
    assert piece.text == work.written.text == decode([10, 11, 12, 13])


def test_the_last_canvas_is_shorter_where_the_context_ends():
    work = writing(context=6 + 4 + 3, max_tokens=7)
    assert len(work.part(0).token_ids) == 4
    write(work, [10, 11, 12, 13])
    assert len(work.part(1).token_ids) == 3
    write(work, [20, 21, 22])
    assert len(work.written.token_ids) == 7


def test_only_the_first_canvas_starts_from_given_tokens():
    work = writing(max_tokens=100, start_ids=(30, 31), pinned=(1,))
    assert tuple(work.part(0).token_ids[:2]) == (30, 31)
    assert work.part(0).state.pinned.tolist() == [False, True, False, False]
    write(work, [30, 31, 12, 13])
    assert tuple(work.part(1).token_ids[:2]) != (30, 31)
    assert not work.part(1).state.pinned.any()


def test_noise_depends_on_the_seed_and_the_canvas():
    def first(seed):
        return writing(denoising=make_denoising(seed=seed)).part(0).token_ids.tolist()

    assert first(1) == first(1)
    assert first(1) != first(2)
    work = writing(max_tokens=100)
    noise = work.part(0).token_ids.tolist()
    write(work, [10, 11, 12, 13])
    assert work.part(1).token_ids.tolist() != noise


def test_a_new_canvas_starts_without_self_conditioning():
    """B22: a canvas takes over the vectors of the one before it."""
    work = writing(max_tokens=100)
    write(work, [10, 11, 12, 13])
    state = work.part(1).state
    assert state.soft is None
    assert state.steps == 0
    assert state.history == ()


def test_drafts_are_told_after_every_step_and_marked():
    work = writing(max_tokens=100, drafts=True)
    step = finished([10, 1, 12, 13])
    early = CanvasState(**{**step.__dict__, "steps": 1, "finished": False})
    (draft,) = work.record(0, early)
    assert (draft.draft, draft.step, draft.token_ids, draft.text) == (True, 1, (10,), decode([10]))
    assert work.written is None
    draft, piece = work.record(0, step)
    assert (draft.draft, piece.draft) == (True, False)


def test_the_effort_it_tells_is_what_its_steps_had_not_what_was_planned_meanwhile():
    work = writing(max_tokens=4)
    work.effort = 0.25
    work.part(0)
    work.effort = 0.5
    work.part(0)
    write(work, [20, 21, 22, 23])
    assert work.written.effort == 0.5
