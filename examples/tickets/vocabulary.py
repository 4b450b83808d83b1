"""Owns the demo tokenizer, a Gemma-like BPE with byte fallback; must not know models."""

import json
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from examples.tickets import tasks
from examples.tickets.generator import BOOKS, reply, tickets
from examples.tickets.phrasebook import DEPARTMENTS
from triton_backend.read_template import CLOSING

SIZE = 2048
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>")
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": "<pad>",
    "eos_token": "<eos>",
    "bos_token": "<bos>",
    "unk_token": "<unk>",
    "sot_token": "<|turn>",
    "eot_token": "<turn|>",
    "soc_token": "<|channel>",
    "eoc_token": "<channel|>",
    "clean_up_tokenization_spaces": False,
}
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\\n' -}}
    {%- if role == 'model' -%}
        {{- '<|channel>thought\\n<channel|>' -}}
    {%- endif -%}
    {{- message['content'] | trim -}}
    {{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|turn>model\\n' -}}
{%- endif -%}
"""


def save_tokenizer(directory: Path, seed: int) -> None:
    """Trains and writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    directory.mkdir(parents=True, exist_ok=True)
    definition = json.loads(_train(seed).to_str())
    definition["added_tokens"] = [t for t in definition["added_tokens"] if t["content"] in SPECIAL]
    text = json.dumps(definition, ensure_ascii=False, indent=1)
    (directory / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(
        json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8"
    )
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _train(seed: int) -> Tokenizer:
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Split(Regex(r"[\n\p{P}]"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[*SPECIAL, *BYTES],
        initial_alphabet=list(string.printable[:95]),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed), trainer)
    return tokenizer


def _corpus(seed: int) -> Iterator[str]:
    """Training tickets, the words of questions and replies, every letter as a word; no answers."""
    for ticket in islice(tickets(seed), 6000):
        yield ticket.text
        yield reply(ticket, long=True)
    asks = [*DEPARTMENTS, CLOSING, "thought", "user", "model", "Question", " yes", " no"]
    asks += [wording for wordings in tasks.INSTRUCTIONS.values() for wording in wordings]
    asks += [about for abouts in tasks.ABOUT.values() for about in abouts if about]
    asks += [level for levels in tasks.LEVEL_NAMES for level in levels]
    asks += [text for outcome in tasks.OUTCOMES if outcome for text in outcome.values()]
    asks += [ask for book in BOOKS.values() for ask in (*book.reply_asks, *book.long_reply_asks)]
    for _ in range(100):
        yield from (f" {ask}" for ask in asks)
        yield from asks
        yield from (f" {letter}" for letter in string.ascii_uppercase)
