"""The filters of FineWeb and C4 at their borders."""

from __future__ import annotations

import math

import pytest

from gristmill.stages.text.filters.fineweb import (
    DuplicateLineCharsFilter,
    LinePunctuationFilter,
    NewlinesToWordsFilter,
    ShortLinesFilter,
)
from gristmill.stages.text.filters.phrases import BadWordsFilter, PhraseFilter, SentenceCountFilter
from gristmill.stages.text.modifiers.removers import C4Lines


@pytest.mark.parametrize(
    ("made", "text", "score", "kept"),
    [
        (LinePunctuationFilter(), "", -1, False),
        (LinePunctuationFilter(), "a.\nb\n\n \n", 0.5, True),
        (LinePunctuationFilter(), "a.\r\nb\r\n", 0.5, True),
        (LinePunctuationFilter(), "你好。\nक्या।\nне?\nno", 0.75, True),
        (LinePunctuationFilter(marks=";"), "a.\nb;", 0.5, True),
        (LinePunctuationFilter(), "a\nb", 0, False),
        (LinePunctuationFilter(keep_if_none=True), "a\nb", 0, True),
        (LinePunctuationFilter(keep_if_none=True), "", -1, False),
        (ShortLinesFilter(), "x" * 30, 1, False),
        (ShortLinesFilter(), "x" * 31, 0, True),
        (ShortLinesFilter(), "é" * 31 + "\n" + "é" * 30, 0.5, True),
        (ShortLinesFilter(), " \n", 1, False),
        (DuplicateLineCharsFilter(), "ab\ncd\n\n", 0, True),
        (DuplicateLineCharsFilter(), "ab\nab\ncdef", 0.25, False),
        (DuplicateLineCharsFilter(), "ab\r\nab\r\ncdef", 0.25, False),
        (DuplicateLineCharsFilter(0.25), "ab\nab\ncdef", 0.25, True),
        (DuplicateLineCharsFilter(), "", 1, False),
        (NewlinesToWordsFilter(), "a b c\nd e f\ng h i\nj", 0.3, True),
        (NewlinesToWordsFilter(), "a b c\nd e f\ng h i\n", 1 / 3, False),
        (NewlinesToWordsFilter(), "\n", math.inf, False),
        (PhraseFilter(), "LOREM ipsum and lorem Ipsum", 2, False),
        (PhraseFilter(["{"]), "none", 0, True),
        (BadWordsFilter(), "anything", 0, True),
        (BadWordsFilter(["rye", "hand mill"]), "Rye! A Hand Mill, dryer, handmill", 2, False),
        (BadWordsFilter(["c++"]), "c+ c++ xc++", 1, False),
        (SentenceCountFilter(), "One. Two? Three!", 3, True),
        (SentenceCountFilter(), "One... two.five and 3.5 \"Six.\" 'Seven!'", 3, True),
        (SentenceCountFilter(), "", 0, False),
    ],
)
def test_the_score_of_a_text_and_its_verdict(made, text, score, kept):
    assert made.score_document(text) == pytest.approx(score)
    assert made.keep_document(made.score_document(text)) is kept


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("one two three four five.", "one two three four five."),
        ("one two three four.", None),
        ("one two three four five", None),
        ("one two three four five...", None),
        ('he said "one two three four five"', 'he said "one two three four five"'),
        ("one two three four five.[12]", "one two three four five."),
        ("one two three [edit] four.", None),
        ("  one two three four five!\t", "one two three four five!"),
        ("one two three four " + "x" * 1001 + ".", None),
        ("one two three four " + "x" * 999 + ".", "one two three four " + "x" * 999 + "."),
        ("please enable Javascript to go on.", None),
        ("this site uses cookies for all.", None),
    ],
)
def test_lines_that_c4_keeps(line, kept):
    assert C4Lines().modify_document(f"{line}\n\n") == (kept or "")


def test_each_rule_for_lines_can_be_turned_off():
    assert C4Lines(end_marks=False).modify_document("one two three four five") == "one two three four five"
    assert C4Lines(min_words=1).modify_document("One.") == "One."
    kept = "please enable Javascript to go on.\nthis site uses cookies for all.\nit says that there [1] too."
    assert C4Lines(javascript=False, policies=False, citations=False).modify_document(kept) == kept
