"""Reads a conversation out of JSON, or says what is wrong with it; knows no template."""

from __future__ import annotations

import json
from typing import Any

from triton_backend.core import RequestError

ROLES = ("system", "user", "assistant")
MAX_MESSAGES = 4096


def parse_messages(text: str) -> list[dict[str, str]]:
    """Messages of role and text; content may be text parts, as OpenAI's clients send them.

    Raises:
        RequestError: not JSON, not a conversation, or a part that is not text.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError("messages", f"is not valid JSON: {error}") from error
    if not isinstance(found, list) or not found:
        raise RequestError("messages", "is not a list of messages", "at least 1 is needed")
    if len(found) > MAX_MESSAGES:
        raise RequestError("messages", f"holds {len(found)}", f"the limit is {MAX_MESSAGES}")
    return [_message(value, f"messages[{at}]") for at, value in enumerate(found)]


def _message(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise RequestError(name, "is not an object", "it needs a role and content")
    unknown = sorted(set(value) - {"role", "content"})
    if unknown:
        raise RequestError(f"{name}.{unknown[0]}", "is not known", "known are role and content")
    role = value.get("role")
    if role not in ROLES:
        raise RequestError(f"{name}.role", f"is {role!r}", f"known are {', '.join(ROLES)}")
    return {"role": role, "content": _content(value.get("content"), f"{name}.content")}


def _content(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise RequestError(name, "is neither text nor a list of parts")
    parts = []
    for at, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise RequestError(f"{name}[{at}]", f"is {kind or 'no part'}", "only text is supported")
        if not isinstance(part.get("text"), str):
            raise RequestError(f"{name}[{at}].text", "is no string")
        parts.append(part["text"])
    return "".join(parts)
