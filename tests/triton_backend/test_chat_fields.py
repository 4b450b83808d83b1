"""A conversation is read as it was written, or refused at the very message that is wrong."""

import json

import pytest

from triton_backend.chat_fields import MAX_MESSAGES, parse_messages
from triton_backend.core import RequestError

HELLO = {"role": "user", "content": "Hello"}


def test_messages_are_read_in_order():
    turns = [("system", "Be brief."), ("user", "안녕"), ("assistant", ""), ("user", " <turn|>\n")]
    messages = [{"role": role, "content": content} for role, content in turns]
    assert parse_messages(json.dumps(messages)) == messages


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    found = parse_messages(json.dumps([{"role": "user", "content": parts}]))
    assert found == [{"role": "user", "content": "one two"}]


def test_a_message_of_no_parts_is_empty():
    assert parse_messages('[{"role": "user", "content": []}]')[0]["content"] == ""


def content(value):
    return [HELLO, {"role": "user", "content": value}]


BAD = [
    ("", "messages is not valid JSON"),
    ("[", "messages is not valid JSON"),
    ("[" * 100_000, "messages is not valid JSON"),
    ([], "messages is not a list of messages, at least 1 is needed"),
    (HELLO, "messages is not a list of messages"),
    ("hello", "messages is not a list of messages"),
    (None, "messages is not a list of messages"),
    ([HELLO] * (MAX_MESSAGES + 1), f"messages holds {MAX_MESSAGES + 1}, the limit is"),
    ([HELLO, "hi"], "messages\\[1\\] is not an object"),
    ([{**HELLO, "name": "Kim"}], "messages\\[0\\].name is not known, known are role and content"),
    ([{"content": "x"}], "messages\\[0\\].role is None, known are system, user, assistant"),
    ([{**HELLO, "role": "tool"}], "messages\\[0\\].role is 'tool'"),
    ([{**HELLO, "role": ["user"]}], "messages\\[0\\].role is \\['user'\\]"),
    ([{"role": "user"}], "messages\\[0\\].content is neither text nor a list of parts"),
    (content(7), "messages\\[1\\].content is neither text"),
    (content(["x"]), "messages\\[1\\].content\\[0\\] is no part, only text"),
    (content([{"text": "x"}]), "messages\\[1\\].content\\[0\\] is no part, only text"),
    (
        content([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]),
        "messages\\[1\\].content\\[1\\] is image_url, only text is supported",
    ),
    (content([{"type": "text"}]), "messages\\[1\\].content\\[0\\].text is no string"),
    (content([{"type": "text", "text": None}]), "messages\\[1\\].content\\[0\\].text is no string"),
]


@pytest.mark.parametrize(("messages", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_no_conversation_is_refused(messages, message):
    written = messages if messages in ("", "[", "[" * 100_000) else json.dumps(messages)
    with pytest.raises(RequestError, match=message):
        parse_messages(written)
