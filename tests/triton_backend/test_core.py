"""The nouns are values, and an error says what is wrong in one line."""

import dataclasses

import pytest

from tests.triton_backend.fakes import make_request
from triton_backend.core import ErrorKind, Reply, RequestError, SplitReason


def test_an_error_names_field_value_and_limit():
    error = RequestError("canvas_ids", "has 300 tokens", "the limit is 256")
    assert str(error) == "canvas_ids has 300 tokens, the limit is 256"
    assert error.kind is ErrorKind.INVALID


def test_an_error_that_names_them_already_is_left_alone():
    assert str(RequestError.saying("questions is empty")) == "questions is empty"


def test_a_reply_says_how_its_canvas_ran():
    request = make_request(1)
    assert Reply(request).fusion == "fused"
    assert [Reply(request, split=reason).fusion for reason in SplitReason] == [
        "split: budget",
        "split: length",
        "split: disabled",
        "split: pages",
    ]


def test_a_request_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_request(1).key = 2
