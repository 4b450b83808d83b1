"""Every option of a generation is honoured, or refused by name with what is allowed."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from tests.triton_backend.asking import asked, flag, ints, parse, real, refused, strings
from triton_backend.generation_defaults import GenerationDefaults
from triton_backend.options import NAMES, NEUTRAL, REFUSED
from triton_backend.parse import INPUTS

NAN, INF = float("nan"), float("inf")


def test_defaults_given_in_fp32_change_nothing():
    """0.1 in fp32 is another number than 0.1 in Python; both must mean the same."""
    given = {name: real(value) for name, value in asdict(GenerationDefaults()).items()}
    given |= {"max_tokens": ints(64), "max_new_tokens": None, "temperature": real(1)}
    assert asked(**given) == asked()


# Option, where it goes, the least and the most it may be, and what is just outside.
RANGES = [
    ("max_denoising_steps", "max_steps", 1, 1024, 0, 1025),
    ("entropy_bound", "rule.bound", 0, 1e6, -1e-6, 1.1e6),
    ("t_min", "t_min", 0, 10, -0.1, 10.1),
    ("t_max", "t_max", 0.01, 10, 0.0099, 10.1),
    ("stability_threshold", "stability_threshold", 0, 64, -1, 65),
    ("confidence_threshold", "confidence_threshold", 1e-30, 1e6, 0, 1.1e6),
    ("accept_threshold", "rule.threshold", 0, 1, -0.1, 1.1),
    ("accept_factor", "rule.factor", 0, 1e6, -0.1, 1.1e6),
    ("max_tokens", "max_tokens", 1, 197, 0, 198),
    ("canvas_length", "canvas_length", 1, 32, 0, 33),
    ("effort_floor", "effort_floor", 0, 1, -0.1, 1.1),
]
WHOLE = ("max_denoising_steps", "stability_threshold", "max_tokens", "canvas_length")
ROOM = {"t_min": {"t_max": real(10)}, "t_max": {"t_min": real(0)}}


def found_at(generation, where):
    own = ("max_tokens", "canvas_length", "effort_floor")
    owner = generation if where in own else generation.denoising
    for name in where.split("."):
        owner = getattr(owner, name)
    return owner


@pytest.mark.parametrize(("name", "where", "least", "most", "below", "above"), RANGES)
def test_an_option_is_honoured_up_to_its_bounds_and_refused_beyond(
    name, where, least, most, below, above
):
    room = ROOM.get(name, {})
    for value in (least, most):
        assert found_at(asked(**{**room, name: real(value)}), where) == value
    for value in (below, above, NAN, INF, -INF):
        refused(f"{name} is .*, allowed are .* to {most:.10g}", **{**room, name: real(value)})


@pytest.mark.parametrize("name", [*(row[0] for row in RANGES), "temperature", *NEUTRAL])
def test_an_option_of_another_type_or_shape_is_refused(name):
    refused(f"{name} is object, a number is needed", **{name: strings(b"1")})
    refused(f"{name} is bool, a number is needed", **{name: flag(True)})
    refused(f"{name} has shape \\[0\\], exactly one number", **{name: ints()})
    refused(f"{name} has shape \\[2\\], exactly one number", **{name: ints(1, 1)})


@pytest.mark.parametrize("name", WHOLE)
def test_a_fraction_of_a_whole_number_is_refused_not_rounded(name):
    refused(f"{name} is 2.5, allowed are whole numbers", **{name: real(2.5)})
    value = found_at(asked(**{name: real(2)}), dict(row[:2] for row in RANGES)[name])
    assert (value, type(value)) == (2, int)


def test_an_option_may_come_in_any_shape_of_one_number():
    assert asked(max_tokens=np.array([[7]], np.int32)).max_tokens == 7
    assert asked(max_tokens=np.array(7, np.int64)).max_tokens == 7


@pytest.mark.parametrize("value", [1, 0.7, 0.01, 10])
def test_temperature_scales_the_schedule(value):
    denoising = asked(temperature=real(value)).denoising
    assert (denoising.t_min, denoising.t_max) == pytest.approx((0.4 * value, 0.8 * value))
    assert not denoising.greedy


def test_temperature_zero_takes_the_most_likely_token_and_keeps_the_schedule():
    assert asked(temperature=real(0)).denoising == replace(asked().denoising, greedy=True)


@pytest.mark.parametrize("value", [1e-9, 0.0099, -1, 10.1, NAN, INF])
def test_any_other_temperature_is_refused_with_what_is_allowed(value):
    refused(
        "temperature is .*, allowed are 0 .* and values from 0.01 to 10", temperature=real(value)
    )


@pytest.mark.parametrize("name", NEUTRAL)
def test_an_option_of_other_engines_is_accepted_where_it_changes_nothing(name):
    values, _ = NEUTRAL[name]
    for value in values:
        assert asked(**{name: real(value)}) == asked(**{name: ints(value)}) == asked()
    for value in (7, -7, 0.5, NAN, INF):
        refused(f"{name} is {value:g}, only .* is possible", **{name: real(value)})


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_cannot_be_is_accepted_empty_and_refused_by_name(name):
    for empty in (strings(), strings(b""), strings("", ""), np.array([], np.uint8)):
        assert asked(**{name: empty}) == asked()
    for value in (strings(b"x"), strings(b"", b"\xff\xd8"), np.zeros(4, np.uint8)):
        refused(f"{name} is given, ", **{name: value})


def test_of_two_wrong_options_the_same_one_is_named_in_every_process():
    wrong = {name: real(7) for name in reversed(NEUTRAL)}
    refused("top_k is 7", **wrong)


def test_excluding_the_input_is_what_happens_anyway():
    assert asked(exclude_input_in_output=flag(True)) == asked()
    refused("exclude_input_in_output is false", exclude_input_in_output=flag(False))


def test_flags_are_taken_and_must_be_booleans():
    generation = asked(stream=flag(True), return_drafts=flag(True))
    assert generation.stream
    assert generation.drafts
    assert parse(return_log_probs=flag(True)).log_probs
    assert asked(stream=flag(False), return_drafts=flag(False)) == asked()
    for name in ("stream", "return_drafts", "return_log_probs", "exclude_input_in_output"):
        refused(f"{name} is int32, a boolean is needed", **{name: ints(1)})
        refused(f"{name} has shape \\[2\\], exactly one", **{name: np.array([True, True])})


def test_every_option_is_an_input_of_its_own():
    assert set(NAMES) < set(INPUTS)
    assert len(INPUTS) == len(set(INPUTS))
