"""Owns text <-> ids and the chat template of a checkpoint; must not know questions or serving."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as BpeTokenizer

# Private-use characters stand for the user's text while the template renders; that text is
# not in the rendering, so nothing a user writes can be mistaken for them.
_HOLE = re.compile("\ue000(\\d+)\ue001")


class TokenizerError(ValueError):
    """The tokenizer files, the chat template or a text cannot be used; says which and why."""


class Tokenizer:
    """The tokenizer and chat template of a checkpoint directory.

    Control rule: only the chat template writes control tokens. The template is rendered with a
    hole for every message, its own text is encoded with control tokens recognised, and each
    message is encoded apart with them spelled out as ordinary characters. So a user's literal
    "<bos>" or "<turn|>" never becomes a control id. Control tokens are the added tokens marked
    special and those the template mentions. Messages are stripped of outer whitespace.
    """

    def __init__(self, definition: str, config: Mapping[str, Any], template: str) -> None:
        self._control = BpeTokenizer.from_str(definition)
        self._plain = BpeTokenizer.from_str(_all_special(definition, template))
        self._plain.encode_special_tokens = True
        self._template_source = template
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(template)
        self._names = {
            key: _content(value) for key, value in config.items() if key[-6:] == "_token"
        }
        self.vocab_size: int = self._control.get_vocab_size(with_added_tokens=True)
        self.bos_id = self._token_id("bos_token", "<bos>")
        self.eos_id = self._token_id("eos_token", "<eos>")
        self.pad_id = self._token_id("pad_token", "<pad>")
        self.end_of_turn_id = self._token_id("eot_token", "<turn|>")
        self._start_of_channel = self._control.token_to_id(self._channel_names[0])
        self._end_of_channel = self._control.token_to_id(self._channel_names[1])
        self.thought_ids = self._empty_thought()
        self._byte_ids = {self._control.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Reads tokenizer.json, tokenizer_config.json and chat_template.jinja of a directory."""
        folder = Path(directory)
        try:
            definition = (folder / "tokenizer.json").read_text(encoding="utf-8")
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            template_file = folder / "chat_template.jinja"
            if template_file.exists():
                template = template_file.read_text(encoding="utf-8")
            else:
                template = config.get("chat_template") or ""
        except (OSError, ValueError) as error:
            raise TokenizerError(f"tokenizer of {folder} cannot be read: {error}") from error
        if not isinstance(template, str) or not template:
            raise TokenizerError(f"{folder} has no chat template")
        return cls(definition, config, template)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a user's text; never a control id."""
        return tuple(self._plain.encode(_valid(text), add_special_tokens=False).ids)

    def encode_control(self, text: str) -> tuple[int, ...]:
        """Ids of trusted text, control tokens recognised; never pass a user's text."""
        return tuple(self._control.encode(_valid(text), add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        text: str = self._control.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def decode_answer(self, ids: Iterable[int], more: bool = False) -> str:
        """What a user reads of generated ids: no control tokens, and no thought channel.

        With `more` ids to come it is only the text that they cannot change.
        """
        kept, hidden = [], False
        for token in ids:
            hidden = token == self._start_of_channel or (hidden and token != self._end_of_channel)
            if not hidden and token != self._end_of_channel:
                kept.append(token)
        # A run of bytes is decoded as one, over ids without text too: any of them may break it.
        while more and kept and (kept[-1] in self._byte_ids or not self.decode(kept[-1:])):
            kept.pop()
        return self.decode(kept)

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> tuple[int, ...]:
        """Ids of a conversation under the class's control rule, thinking switched off."""
        holes = [{**m, "content": f"\ue000{i}\ue001"} for i, m in enumerate(messages)]
        parts = _HOLE.split(self._render(holes, add_generation_prompt))
        if sorted(parts[1::2]) != sorted(str(i) for i in range(len(messages))):
            raise TokenizerError("the chat template does not show each message exactly once")
        ids: list[int] = []
        for position, part in enumerate(parts):
            if position % 2:
                ids.extend(self.encode(messages[int(part)]["content"].strip()))
            elif part:
                ids.extend(self.encode_control(part))
        return tuple(ids)

    def _render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=False,
                **self._names,
            )
        except TemplateError as error:
            raise TokenizerError(f"the chat template fails: {error}") from error

    def _token_id(self, key: str, default: str) -> int:
        name = self._names.get(key, default)
        token_id: int | None = self._control.token_to_id(name)
        if token_id is None:
            raise TokenizerError(f"{key} {name!r} is not in the vocabulary")
        return token_id

    @property
    def _channel_names(self) -> tuple[str, str]:
        return (
            self._names.get("soc_token", "<|channel>"),
            self._names.get("eoc_token", "<channel|>"),
        )

    def _empty_thought(self) -> tuple[int, ...]:
        """The block a model that does not think starts with, unless the prompt already has it."""
        start, end = self._channel_names
        known = None not in (self._start_of_channel, self._end_of_channel)
        if not known or start not in self._template_source:
            return ()
        block = f"{start}thought\n{end}"
        prompt = self._render([{"role": "user", "content": ""}], True)
        return () if prompt.endswith(block) else self.encode_control(block)


def _all_special(definition: str, template: str) -> str:
    """The definition with every added token that the template mentions marked special."""
    data = json.loads(definition)
    for token in data.get("added_tokens", ()):
        content = token["content"]
        token["special"] = token["special"] or bool(content.strip() and content in template)
    return json.dumps(data, ensure_ascii=False)


def _content(value: object) -> str:
    return str(value["content"]) if isinstance(value, Mapping) else str(value)


def _valid(text: str) -> str:
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise TokenizerError("text holds a lone surrogate, which is not valid Unicode")
    return text


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
