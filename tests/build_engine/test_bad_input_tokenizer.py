"""Every kind of tokenizer that does not fit the model, or that no server could start with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engine.tokenizer_files import check_tokenizer
from tests.build_engine.refusals import Change, Refusal, edit_json

TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def vocabulary(**ids: Any) -> Change:
    return lambda t: t["model"]["vocab"].update(ids)


def added(**token: Any) -> Change:
    whole = {
        **{"id": 519, "content": "<extra>", "single_word": False, "lstrip": False},
        **{"rstrip": False, "normalized": False, "special": True, **token},
    }
    return lambda t: t["added_tokens"].append(whole)


DEFINITIONS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "more_ids_than_rows": (vocabulary(extra=519), ("token id 519", "512 rows", "config.json")),
    "an_added_id_beyond_the_rows": (added(), ("added token '<extra>' the id 519", "gives it 509")),
    "an_id_a_word": (vocabulary(extra="7"), ("is not a tokenizer",)),
    "an_id_negative": (vocabulary(extra=-1), ("is not a tokenizer",)),
    "no_model": (lambda t: t.pop("model"), ("is not a tokenizer",)),
    "another_kind_of_model": (lambda t: t["model"].update(type="Novel"), ("is not a tokenizer",)),
    "a_list": (lambda t: t["model"].update(vocab=[1, 2]), ("is not a tokenizer",)),
    "no_vocabulary": (
        lambda t: (t["model"].update(vocab={}, merges=[]), t.update(added_tokens=[])),
        ("token id -1",),
    ),
    "no_turn_token": (
        lambda t: (
            t["model"]["vocab"].pop("<turn|>"),
            t.update(added_tokens=[a for a in t["added_tokens"] if a["content"] != "<turn|>"]),
        ),
        ("eot_token is '<turn|>'",),
    ),
}
CONFIGS: dict[str, tuple[Change, str]] = {
    "an_end_that_is_no_token": (lambda c: c.update(eos_token="</s>"), "eos_token is '</s>'"),
    "a_start_that_is_null": (lambda c: c.update(bos_token=None), "bos_token is None"),
    "a_pad_that_is_a_number": (lambda c: c.update(pad_token=0), "pad_token is 0"),
    "a_pad_without_content": (lambda c: c.update(pad_token={"id": 0}), "pad_token is None"),
}
TEMPLATES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "has no chat template"),
    "empty": (b"", "has no chat template"),
    "no_template": (b"{% for message in messages %}", "is not a chat template"),
    "no_text": (b"\xff\xfe\x00", "cannot be read"),
}


def parametrized(names: str, table: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(names.split(), table.values(), ids=table.keys())


@parametrized("change said", DEFINITIONS)
def test_a_tokenizer_that_does_not_fit_is_refused(
    copy_of: Callable[[], Path], refused: Refusal, change: Change, said: tuple[str, ...]
) -> None:
    directory = copy_of()
    edit_json(directory / TOKENIZER, change)
    message = refused(directory)
    assert all(part in message for part in said), message


@parametrized("change said", CONFIGS)
def test_a_control_token_that_is_not_there_is_refused(
    copy_of: Callable[[], Path], refused: Refusal, change: Change, said: str
) -> None:
    directory = copy_of()
    edit_json(directory / CONFIG, change)
    assert said in refused(directory)


@parametrized("content said", TEMPLATES)
def test_a_checkpoint_that_cannot_chat_is_refused(
    copy_of: Callable[[], Path], refused: Refusal, content: bytes | None, said: str
) -> None:
    directory = copy_of()
    (directory / TEMPLATE).unlink()
    if content is not None:
        (directory / TEMPLATE).write_bytes(content)
    assert said in refused(directory)


def test_several_templates_by_name_are_refused(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    (directory / TEMPLATE).unlink()
    named = [{"name": "default", "template": "{{ messages }}"}]
    edit_json(directory / CONFIG, lambda c: c.update(chat_template=named))
    assert "has no chat template" in refused(directory)


@pytest.mark.parametrize("name", [TOKENIZER, CONFIG])
@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"a": 1, "a": 2}'])
def test_a_missing_or_damaged_file_is_named(
    copy_of: Callable[[], Path], refused: Refusal, name: str, content: str | None
) -> None:
    directory = copy_of()
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_text(content)
    assert name in refused(directory)


def test_a_template_in_the_config_serves_as_well(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    template = (directory / TEMPLATE).read_text()
    (directory / TEMPLATE).unlink()
    edit_json(directory / CONFIG, lambda c: c.update(chat_template=template))
    check_tokenizer(directory, 512)


def test_rows_beyond_the_tokens_are_padding(copy_of: Callable[[], Path]) -> None:
    """509 tokens, 512 rows: tables are padded, and rows without a token are never written."""
    directory = copy_of()
    ids = json.loads((directory / TOKENIZER).read_text())["model"]["vocab"].values()
    assert max(ids) == 508
    check_tokenizer(directory, 512)
    check_tokenizer(directory, 509)
