"""Typed reading of the fields of a configuration; knows no field by name."""

from __future__ import annotations

import math
from typing import Any

from build_engine.errors import EngineError

MOST = (1 << 31) - 1
_REMEDY = "correct it or download the checkpoint again"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Fields:
    """One JSON object; `where` names its file, and the key that leads to it; `remedy` what to do.

    Raises:
        EngineError: from every reader, naming the field, its value and what it may be.
    """

    def __init__(self, values: object, where: str, remedy: str = _REMEDY) -> None:
        self.where, self._remedy = where, remedy
        if not isinstance(values, dict):
            raise EngineError(f"{where} is {_short(values)}, it must be a JSON object; {remedy}.")
        self._values: dict[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """A value of any type; null reads as absent."""
        value = self._values.get(name)
        return default if value is None else value

    def items(self) -> list[tuple[str, Any]]:
        """All fields, null or not."""
        return list(self._values.items())

    def names(self) -> set[str]:
        """Names of the fields that are not null."""
        return {name for name, value in self._values.items() if value is not None}

    def inner(self, name: str, default: object = None) -> Fields:
        """An object within this one."""
        return Fields(self.get(name, default), f"{self.where}: {name}", self._remedy)

    def refuse(self, name: str, allowed: str) -> EngineError:
        """The error of a value that is not what is allowed."""
        found = f"is {_short(self._values[name])}" if name in self._values else "is missing"
        return EngineError(f"{self.where}: {name} {found}, it must be {allowed}; {self._remedy}.")

    def whole(self, name: str, least: int = 1, most: int = MOST, default: int | None = None) -> int:
        """A whole number; `default` where the field is absent."""
        value = self._values.get(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.refuse(name, f"a whole number from {least} to {most}")
        return value

    def positive(self, name: str, default: float | None = None, most: float = math.inf) -> float:
        """A number above 0; `default` where the field is absent."""
        value: Any = self._values.get(name, default)
        # An int beyond what a float holds compares with one all the same.
        if type(value) not in (int, float) or not 0 < value <= min(most, 1e30):
            most_text = f" and at most {most:g}" if most < math.inf else ", and finite"
            raise self.refuse(name, f"a number above 0{most_text}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `default` where the field is absent."""
        value = self._values.get(name, default)
        if type(value) is not bool:
            raise self.refuse(name, "true or false")
        return value

    def token_id(self, name: str, vocab_size: int, default: int) -> int:
        """A token id; `default` where the field is absent or null."""
        return self.whole(name, 0, vocab_size - 1) if self.get(name) is not None else default

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """One token id or a list of them; none where the field is absent or null."""
        value = self.get(name, [])
        ids = value if isinstance(value, list) else [value]
        if any(type(n) is not int or not 0 <= n < vocab_size for n in ids):
            raise self.refuse(name, f"token ids from 0 to {vocab_size - 1}")
        return tuple(ids)
