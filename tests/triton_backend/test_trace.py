"""A `traceparent` is taken exactly as W3C Trace Context allows it."""

import pytest

from triton_backend.trace import Trace, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_both_ids_are_found_and_the_text_is_kept(flags):
    text = f"00-{TRACE}-{SPAN}-{flags}"
    assert parse_traceparent(text) == Trace(text, TRACE, SPAN)


@pytest.mark.parametrize("text", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes"])
def test_a_later_version_may_say_more(text):
    assert parse_traceparent(text) == Trace(text, TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", f"{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN.upper()}-01", f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[1:]}-{SPAN}-01", f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n", f"01-{TRACE}-{SPAN}-01x",
    ],
)  # fmt: skip
def test_anything_else_is_no_trace(text):
    assert parse_traceparent(text) is None
