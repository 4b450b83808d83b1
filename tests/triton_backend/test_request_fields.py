"""How a request is to be treated: as an input or a parameter, honoured or refused by name."""

import numpy as np
import pytest

from tests.triton_backend.asking import PARSER, ints, real, strings
from tests.triton_backend.asking import parse as parse_generation
from tests.triton_backend.test_parse import inputs, parse, questions, text
from triton_backend.core import RequestError
from triton_backend.request_fields import DAY_MS, NAMES, Treatment, read_treatment, with_parameters

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# Name, what it becomes, a value as a parameter and the same as an input.
GIVEN = [
    ("priority", "priority", -3, -3, ints(-3)),
    ("tenant", "tenant", "가게", "가게", text("가게".encode())),
    ("cache_salt", "salt", "s\x00", "s\x00", text(b"s\x00")),
    ("queue_timeout_ms", "queue_timeout", 0.25, 250, real(250)),
    ("return_timing", "timing", True, True, np.array([True])),
]


def treated(given=None, **parameters):
    return read_treatment(with_parameters(given or {}, parameters))


@pytest.mark.parametrize(("name", "field", "value", "parameter", "array"), GIVEN)
def test_a_parameter_counts_like_the_input_of_its_name(name, field, value, parameter, array):
    for made in (treated({name: array}), treated(**{name: parameter})):
        assert getattr(made, field) == value
        assert made != Treatment()


def test_nothing_given_is_the_servers_own_choice():
    assert treated() == Treatment() == treated({"tenant": text(b""), "traceparent": text(b"")})


def test_an_input_counts_before_a_parameter():
    assert treated({"priority": ints(2)}, priority=5).priority == 2


def test_a_number_may_be_spelled_since_forwarding_models_spell_fractions():
    assert treated(queue_timeout_ms="0.5", priority="-2") == treated(
        queue_timeout_ms=0.5, priority=-2
    )


@pytest.mark.parametrize("name", ["priority", "queue_timeout_ms", "tenant", "cache_salt"])
def test_the_request_of_a_read_or_a_generation_carries_it(name):
    _, field, value, _, array = next(row for row in GIVEN if row[0] == name)
    for made in (inputs(), questions()):
        assert getattr(parse({**made, name: array}).request, field) == value
    assert getattr(parse_generation(**{name: array}).request, field) == value
    assert getattr(PARSER.parse({"input_ids": ints(5)}, {name: "7"}).request, field) != value


def test_what_is_shown_is_remembered_with_the_request():
    parsed = parse(inputs(), return_timing=True, traceparent=TRACE)
    assert parsed.treatment.timing
    assert parsed.treatment.trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize("value", [1_500_000, "1500000", 1.5e6])
def test_tritons_own_timeout_is_in_microseconds_and_counts_last(value):
    assert treated(timeout=value).queue_timeout == 1.5
    assert treated(timeout=value, queue_timeout_ms=2).queue_timeout == 0.002
    assert treated({"queue_timeout_ms": real(3)}, timeout=value).queue_timeout == 0.003


def test_tritons_timeout_of_zero_is_none_and_one_beyond_all_is_a_day():
    assert treated(timeout=0) == Treatment()
    assert treated(timeout=2**64 - 1).queue_timeout == DAY_MS / 1e3


BAD = [
    ({"priority": -9}, "priority is -9, allowed are whole numbers from -8 to 8"),
    ({"priority": 9}, "priority is 9, allowed are whole numbers from -8 to 8"),
    ({"priority": 0.5}, "priority is 0.5, allowed are whole numbers"),
    ({"priority": "high"}, "priority is object, a number is needed"),
    ({"priority": True}, "priority is bool, a number is needed"),
    ({"priority": None}, "parameter 'priority' is None, one value is needed"),
    ({"priority": [1]}, "parameter 'priority' is \\[1\\], one value is needed"),
    ({"queue_timeout_ms": 0}, "queue_timeout_ms is 0, allowed are values above 0 to 86400000"),
    ({"queue_timeout_ms": -1}, "queue_timeout_ms is -1, allowed"),
    ({"queue_timeout_ms": float("nan")}, "queue_timeout_ms is nan, allowed"),
    ({"queue_timeout_ms": 1e9}, "queue_timeout_ms is 1000000000, allowed"),
    ({"timeout": -1}, "parameter 'timeout' is -1, microseconds from 0"),
    ({"timeout": "soon"}, "parameter 'timeout' is 'soon', microseconds"),
    ({"timeout": True}, "parameter 'timeout' is True, microseconds"),
    ({"tenant": "x" * 65}, "tenant has 65 bytes, the limit is 64"),
    ({"tenant": 7}, "tenant is int64, a string is needed"),
    ({"tenant": "\ud800"}, "tenant is not valid UTF-8 at byte 0"),
    ({"cache_salt": "가" * 86}, "cache_salt has 258 bytes, the limit is 256"),
    ({"return_timing": 1}, "return_timing is int64, a boolean is needed"),
    ({"traceparent": TRACE[:-1]}, "traceparent is '00-.*', W3C Trace Context wants 00-<32 hex"),
    ({"traceparent": "x" * 513}, "traceparent has 513 bytes, the limit is 512"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[str(case) for case, _ in BAD])
def test_a_wrong_value_is_refused_with_name_value_and_limit(given, message):
    for _ in range(2):
        with pytest.raises(RequestError, match=message):
            parse(inputs(), **given)


@pytest.mark.parametrize("name", NAMES)
def test_two_values_are_refused(name):
    value = {"return_timing": np.array([True, True])}.get(name)
    two = strings(b"a", b"b") if name in ("tenant", "cache_salt", "traceparent") else ints(1, 1)
    with pytest.raises(RequestError, match=f"{name} has shape \\[2\\], exactly one"):
        parse({**inputs(), name: two if value is None else value})
