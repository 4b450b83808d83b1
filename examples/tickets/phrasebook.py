"""Owns the shape of one language's phrasings; must not know any one language."""

from collections.abc import Mapping
from dataclasses import dataclass

DEPARTMENTS = ("billing", "account", "technical", "shipping")
LEVELS = 5


@dataclass(frozen=True)
class Split:
    """Phrasings seen in training, and phrasings kept for held-out tickets only."""

    train: tuple[str, ...]
    heldout: tuple[str, ...]

    def pick(self, heldout: bool) -> tuple[str, ...]:
        return self.heldout if heldout else self.train


@dataclass(frozen=True)
class Phrasebook:
    """One language. Issues are clauses a frame turns into sentences; all the rest is sentences."""

    words: Mapping[str, tuple[str, ...]]
    greetings: Split
    issues: Mapping[str, Split]
    issue_frames: Split
    topics: Mapping[str, tuple[str, ...]]
    topic_frames: Split
    past_frames: Split
    again: Mapping[bool, Split]
    urgency: tuple[Split, ...]
    reply_asks: tuple[str, ...]
    long_reply_asks: tuple[str, ...]
    reply: str
    reply_endings: Mapping[bool, str]
    teams: Mapping[str, str]
    whens: tuple[str, ...]
