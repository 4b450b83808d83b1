"""Joined pieces are the whole text, cut before the first stop word, whatever the pieces are."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_backend.tokenizer import Tokenizer
from triton_backend.transcript import Transcript

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"
TOKENIZER = Tokenizer.load(CHECKPOINT)
decode = TOKENIZER.decode_answer


def ids_of(*texts):
    """Ids of texts that are encoded apart, so that the cuts between them are cuts between ids."""
    return [i for text in texts for i in TOKENIZER.encode(text)]


def bytes_of(text):
    """The byte tokens of a text, which a tokenizer falls back on."""
    base = TOKENIZER.encode("\x00")[0]
    return [base + value for value in text.encode()]


def told(pieces, *stop_words):
    """The transcript of some pieces of ids, with the pieces of text that it gave."""
    transcript = Transcript(decode, stop_words)
    texts = []
    for piece in pieces:
        texts.append(transcript.extend(piece))
        if transcript.ended:
            break
    return transcript, [*texts, transcript.close()]


def singly(ids):
    return [[i] for i in ids]


@pytest.mark.parametrize(
    "texts",
    [
        ("one", " two"),
        (" leading", " and trailing "),
        ("\n\n", "\n"),
        ("", "a", ""),
        ("안녕하", "세요 뷁", "쀍이"),
        ("a\tb", "  ", "c"),
    ],
)
def test_spaces_and_line_breaks_between_pieces_are_kept(texts):
    """A piece decoded by itself would lose the space that it begins with."""
    transcript, pieces = told([ids_of(text) for text in texts])
    assert "".join(pieces) == transcript.text == "".join(texts)


def test_a_character_is_shown_when_it_is_whole():
    pieces = told(singly([*bytes_of("뷁"), *ids_of("a")]))[1]
    assert pieces == ["", "", "", "뷁a", ""]


def test_a_run_of_bytes_waits_for_its_end_which_may_break_all_of_it():
    """The tokenizer decodes a run as one: what fits no character breaks those before it too."""
    broken = [*bytes_of("뷁"), bytes_of("뷁")[0], *ids_of("a")]
    assert decode(broken) == "\ufffd" * 4 + "a"
    assert "".join(told(singly(broken))[1]) == decode(broken)


@pytest.mark.parametrize("between", ["<pad>", "<|turn>", "<|channel>thought\n<channel|>"])
def test_a_character_may_have_hidden_tokens_within(between):
    first, *rest = bytes_of("뷁")
    ids = [first, *TOKENIZER.encode_control(between), *rest, *ids_of("a")]
    assert "".join(told(singly(ids))[1]) == "뷁a"


def test_text_that_ends_broken_is_told_so_at_the_end():
    pieces = told(singly([*ids_of("a"), *bytes_of("뷁")[:2]]))[1]
    assert pieces == ["a", "", "", "\ufffd\ufffd"]


def test_nothing_is_a_transcript():
    transcript, pieces = told([])
    assert (pieces, transcript.text, transcript.token_ids) == ([""], "", ())


SAID = ["It is ", "done", ".", " Bye", "."]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([" "], "It"),  # one character
        (["on"], "It is d"),  # in the middle of a token
        (["done. B"], "It is "),  # over several canvases
        ([". Bye."], "It is done"),  # with the last token of all
        (["nor", "xyz", "Byes", "e. ", "It is done. Bye.!"], "It is don"),  # the fourth of five
        (["q" * 10_000], "It is done. Bye."),  # longer than all there is
        (["Is it done?"], "It is done. Bye."),  # the prompt, which is no part of it
        (["done", "is"], "It "),  # the first in the text, not in the list
        (["It"], ""),
    ],
)
@pytest.mark.parametrize("cut", [singly, lambda ids: [ids], lambda ids: [ids[:3], ids[3:]]])
def test_text_ends_before_the_first_stop_word(words, text, cut):
    transcript, pieces = told(cut(ids_of(*SAID)), *words)
    assert "".join(pieces) == transcript.text == text
    assert transcript.ended == (text != "".join(SAID))


def test_a_stop_word_is_found_however_its_text_was_tokenised():
    """Compared as ids, a word encoded by itself is not the word within a text."""
    spelled = bytes_of("stop")
    assert spelled != ids_of("stop")
    for ids in (ids_of("st", "op"), spelled, ids_of("a stop b")):
        assert told([ids], "stop")[0].ended


def test_no_piece_shows_part_of_a_stop_word_or_holds_back_more():
    pieces = told(singly(ids_of("a", "b", "c", "x", "a", "b", "c", "d", "e")), "abcd")[1]
    assert pieces == ["", "", "", "abcx", "", "", "", "", ""]


def test_what_was_held_back_is_told_at_the_end():
    transcript, pieces = told([ids_of("almost st")], "stop")
    assert pieces == ["almost ", "st"]
    assert not transcript.ended


def test_a_long_stop_word_that_almost_comes_does_not_slow_it_down():
    word = "ab" * 8000
    pieces = told([ids_of("ab" * 3000)] * 3, *[word + str(n) for n in range(64)])[1]
    assert pieces == ["", "", "ab" * 1000, "ab" * 8000]


@pytest.mark.parametrize(("word", "kept"), [("w", 2), ("two th", 3), ("o", 1), ("four", 4)])
def test_the_tokens_end_with_the_one_that_completes_the_word(word, kept):
    parts = [ids_of(text) for text in ("one", " two", " three", " four")]
    ids = [i for part in parts for i in part]
    transcript = told([ids], word)[0]
    assert word in decode(transcript.token_ids)
    assert word not in decode(transcript.token_ids[:-1])
    assert len(transcript.token_ids) <= sum(map(len, parts[:kept]))


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 100])
def test_a_word_before_an_unfinished_character_is_found_at_once(pieces):
    """Decoded with half a character, the bytes before it show no word either."""
    ids = [*bytes_of("a\n뷁뷁"), *ids_of("b")]
    transcript, texts = told([ids[at : at + pieces] for at in range(0, len(ids), pieces)], "\n")
    assert ("".join(texts), transcript.token_ids) == ("a", tuple(ids[:2]))


def test_a_stop_word_in_hidden_text_does_not_count():
    hidden = TOKENIZER.encode_control("<|channel>thought\nstop<channel|>")
    transcript, pieces = told([hidden, ids_of("go")], "stop")
    assert ("".join(pieces), transcript.ended) == ("go", False)


KOREAN = st.text("안녕하세요뷁쀍 ab\n.", max_size=12)
TOKENS = st.one_of(
    KOREAN.map(TOKENIZER.encode),
    KOREAN.map(bytes_of),
    st.lists(st.integers(0, TOKENIZER.vocab_size + 10), max_size=4),
)
IDS = st.lists(TOKENS, max_size=8).map(lambda parts: [i for part in parts for i in part])


@st.composite
def pieces_of(draw, ids):
    cuts = draw(st.sets(st.integers(0, len(ids))))
    return [ids[a:b] for a, b in pairwise(sorted(cuts | {0, len(ids)}))]


@settings(max_examples=500, deadline=None)
@given(IDS, st.data())
def test_any_pieces_of_any_ids_join_to_the_text_of_all(ids, data):
    transcript, texts = told(data.draw(pieces_of(ids)))
    assert "".join(texts) == transcript.text == decode(ids)
    assert not any(text.endswith("\ufffd") for text in texts[:-1])
    assert transcript.token_ids == tuple(ids)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.one_of(KOREAN.map(TOKENIZER.encode), KOREAN.map(bytes_of)), min_size=1), st.data()
)
def test_any_stop_word_cuts_any_pieces_of_text_at_its_first_occurrence(parts, data):
    ids = [i for part in parts for i in part]
    text = decode(ids)
    start = data.draw(st.integers(0, len(text)))
    word = text[start : start + data.draw(st.integers(1, 5))] or "뷁a"
    transcript, texts = told(data.draw(pieces_of(ids)), word)
    assert "".join(texts) == transcript.text == text.split(word)[0]
    fewest = next((n for n in range(len(ids) + 1) if word in decode(ids[:n])), len(ids))
    assert transcript.token_ids == tuple(ids[:fewest])


@settings(max_examples=300, deadline=None)
@given(
    IDS, st.lists(st.text("안녕뷁a \n", min_size=1, max_size=3), min_size=1, max_size=5), st.data()
)
def test_with_any_stop_words_the_text_is_that_of_the_tokens_before_the_first(ids, words, data):
    transcript, texts = told(data.draw(pieces_of(ids)), *words)
    text = decode(transcript.token_ids)
    ends = [text.index(word) for word in words if word in text]
    assert transcript.ended == bool(ends)
    assert "".join(texts) == transcript.text == text[: min(ends, default=len(text))]
