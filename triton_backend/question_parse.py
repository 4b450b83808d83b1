"""Owns the wire shape of questions, JSON in, valid questions out; must not know tokens."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

Kind = Literal["noul", "choice", "score"]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_OPTIONS = len(LETTERS)
MAX_LEVELS = 9
FIELDS = ("type", "instructions", "criteria")


class QuestionError(ValueError):
    """A question cannot be asked; the message names the field, the value and the limit."""


@dataclass(frozen=True)
class Option:
    """One possible answer: the label the model writes, its name on the wire, its description."""

    label: str
    name: str
    description: str


@dataclass(frozen=True)
class Question:
    """A valid question; its id is echoed to the caller and never shown to the model."""

    id: str
    kind: Kind
    instructions: str
    options: tuple[Option, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(option.label for option in self.options)


def parse_questions(json_text: str) -> tuple[Question, ...]:
    """Questions in the order given; raises QuestionError for anything that is not one."""
    try:
        data = json.loads(json_text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except QuestionError:
        raise
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"questions is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise QuestionError(f"questions must be an object of id to question, got {_kind(data)}")
    if not data:
        raise QuestionError("questions is empty, at least 1 question is needed")
    return tuple(_question(name, value) for name, value in data.items())


def as_text(value: object, field: str) -> str:
    """A string as it is; an object or array as JSON, keys in the order given."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
    else:
        raise QuestionError(f"{field} must be a string, an object or an array, got {_kind(value)}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise QuestionError(f"{field} holds a lone surrogate, which is not valid Unicode")
    return text


def _question(name: str, value: object) -> Question:
    field = f"questions[{as_text(name, 'a question id')!r}]"
    if not isinstance(value, dict):
        raise QuestionError(f"{field} must be an object, got {_kind(value)}")
    unknown = [key for key in value if key not in FIELDS]
    if unknown:
        raise QuestionError(f"{field} has unknown field {unknown[0]!r}, known are {FIELDS}")
    kind = value.get("type")
    if kind not in ("noul", "choice", "score"):
        raise QuestionError(f"{field}.type is {kind!r}, known are 'noul', 'choice' and 'score'")
    raw = value.get("instructions")
    instructions = "" if raw is None else as_text(raw, f"{field}.instructions").strip()
    read = {"noul": _outcomes, "choice": _choices, "score": _levels}[kind]
    options = read(value.get("criteria"), f"{field}.criteria")
    if kind == "noul" and not instructions and not any(o.description for o in options):
        raise QuestionError(f"{field} needs instructions or a criterion that describes an outcome")
    return Question(name, cast(Kind, kind), instructions, options)


def _outcomes(criteria: Any, field: str) -> tuple[Option, ...]:
    given = {} if criteria is None else criteria
    if not isinstance(given, dict):
        raise QuestionError(
            f"{field} must be an object with 'true' and 'false', got {_kind(given)}"
        )
    unknown = [key for key in given if key not in ("true", "false")]
    if unknown:
        raise QuestionError(f"{field} has unknown outcome {unknown[0]!r}, known: 'true', 'false'")
    outcomes = (("Y", "true"), ("N", "false"))
    return tuple(
        Option(label, name, _description(given.get(name), f"{field}[{name!r}]"))
        for label, name in outcomes
    )


def _choices(criteria: Any, field: str) -> tuple[Option, ...]:
    if not isinstance(criteria, dict):
        raise QuestionError(
            f"{field} must be an object of option to description, got {_kind(criteria)}"
        )
    _count(criteria, field, "options", MAX_OPTIONS)
    options = []
    for label, (name, value) in zip(LETTERS, criteria.items(), strict=False):
        if not as_text(name, f"an option of {field}").strip():
            raise QuestionError(f"{field} has an option with an empty name")
        options.append(Option(label, name, _description(value, f"{field}[{name!r}]")))
    return tuple(options)


def _levels(criteria: Any, field: str) -> tuple[Option, ...]:
    if not isinstance(criteria, list):
        raise QuestionError(
            f"{field} must be an array of level descriptions, got {_kind(criteria)}"
        )
    _count(criteria, field, "levels", MAX_LEVELS)
    options = []
    for level, value in enumerate(criteria):
        text = as_text(value, f"{field}[{level}]").strip()
        if not text:
            raise QuestionError(f"{field}[{level}] is empty, a level needs a description")
        options.append(Option(str(level), str(level), text))
    return tuple(options)


def _description(value: object, field: str) -> str:
    return "" if value is None else as_text(value, field).strip()


def _count(
    criteria: Sequence[object] | dict[str, object], field: str, what: str, most: int
) -> None:
    if not 2 <= len(criteria) <= most:
        raise QuestionError(f"{field} has {len(criteria)} {what}, allowed are 2 to {most}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(n for n, _ in pairs if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise QuestionError(f"questions names {twice!r} twice in one object")
    return result


def _no_constant(name: str) -> object:
    raise QuestionError(f"questions holds {name}, which is not valid JSON")


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return kinds.get(type(value), f"{value!r}")
