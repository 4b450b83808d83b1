"""The generated tickets: reproducible, balanced, honest about what is held out."""

import json
from collections import Counter
from dataclasses import asdict
from itertools import islice

import pytest

from examples.tickets import heldout
from examples.tickets.generator import BOOKS, reply, tickets
from examples.tickets.phrasebook import DEPARTMENTS, LEVELS, Split


def splits(book) -> list[Split]:
    return [
        book.greetings,
        *book.issues.values(),
        book.issue_frames,
        book.topic_frames,
        book.past_frames,
        *book.again.values(),
        *book.urgency,
    ]


def some(seed: int, count: int = 2000, held: bool = False):
    return list(islice(tickets(seed, held), count))


def test_the_same_seed_gives_the_same_tickets():
    assert some(4, 50) == some(4, 50)
    assert some(4, 50) != some(5, 50)


@pytest.mark.parametrize("language", sorted(BOOKS))
def test_no_heldout_phrasing_is_a_training_phrasing(language):
    for split in splits(BOOKS[language]):
        assert split.train and split.heldout
        assert not set(split.train) & set(split.heldout)


def test_no_heldout_sentence_occurs_in_training_tickets():
    seen = "\n".join(ticket.text for ticket in some(1, 5000))
    for book in BOOKS.values():
        for split in (*book.again.values(), *book.urgency, *book.issues.values()):
            for phrasing in split.heldout:
                if "{" not in phrasing:
                    assert phrasing not in seen


def test_labels_are_balanced_and_independent():
    drawn = some(2, 8000)
    pairs = Counter((t.department, t.writes_again, t.urgency) for t in drawn)
    expected = len(drawn) / (len(DEPARTMENTS) * 2 * LEVELS)
    assert len(pairs) == len(DEPARTMENTS) * 2 * LEVELS
    assert all(0.6 * expected < count < 1.4 * expected for count in pairs.values())
    assert {t.language for t in drawn} == set(BOOKS)


def best_single_word_rule(drawn, label) -> float:
    """Accuracy of: if the word is there say its commonest label, else the commonest label."""
    best = 0.0
    words = Counter(w for t in drawn for w in set(t.text.split()))
    for word, _ in words.most_common(400):
        groups = {True: Counter(), False: Counter()}
        for t in drawn:
            groups[word in t.text.split()][label(t)] += 1
        right = sum(max(g.values()) for g in groups.values() if g)
        best = max(best, right / len(drawn))
    return best


def test_no_single_word_decides_a_label():
    drawn = some(3, 1500)
    assert best_single_word_rule(drawn, lambda t: t.department) < 0.45
    assert best_single_word_rule(drawn, lambda t: t.writes_again) < 0.75
    assert best_single_word_rule(drawn, lambda t: t.urgency) < 0.45


def test_tickets_mention_other_departments_than_their_own():
    book = BOOKS["en"]
    drawn = [t for t in some(6) if t.language == "en"]
    mixed = sum(
        any(
            topic in t.text.lower()
            for name in DEPARTMENTS
            if name != t.department
            for topic in book.topics[name]
        )
        for t in drawn
    )
    assert mixed > len(drawn) / 3


def test_every_placeholder_is_filled_and_replies_follow_the_labels():
    for ticket in some(7, 500) + some(7, 500, held=True):
        assert "{" not in ticket.text
        short, long = reply(ticket, long=False), reply(ticket, long=True)
        assert long.startswith(short)
        assert BOOKS[ticket.language].teams[ticket.department] in short


def test_the_committed_heldout_file_is_what_the_seed_draws():
    fresh = [json.dumps(asdict(t), ensure_ascii=False) for t in some(heldout.SEED, 600, held=True)]
    committed = [json.dumps(asdict(t), ensure_ascii=False) for t in heldout.heldout()]
    assert committed == fresh
