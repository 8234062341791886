"""One definition of a line: texts with Windows line ends get the scores and changes of those with Unix line ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.kernels.texts import Texts
from gristmill.stages.text import filters
from gristmill.stages.text.filters import fineweb
from gristmill.stages.text.filters.code import NumberOfLinesOfCodeFilter, _longest_line
from gristmill.stages.text.lines import lines_in
from gristmill.stages.text.modifiers import LineRemover
from gristmill.stages.text.modifiers.removers import BoilerPlateStringModifier, C4Lines

BY_LINES = [
    filters.BulletsFilter(),
    filters.EllipsisFilter(),
    filters.PunctuationFilter(),
    filters.RepeatedLinesFilter(),
    filters.RepeatedLinesByCharFilter(),
    filters.RepeatedParagraphsFilter(),
    filters.RepeatedParagraphsByCharFilter(),
    filters.BoilerPlateStringFilter(),
    fineweb.LinePunctuationFilter(),
    fineweb.LinePunctuationFilter(blank_lines=True),
    fineweb.ShortLinesFilter(length=3),
    fineweb.ShortLinesFilter(length=3, blank_lines=True),
    fineweb.DuplicateLineCharsFilter(),
    fineweb.NewlinesToWordsFilter(),
    NumberOfLinesOfCodeFilter(),
]
LINES = ["", " ", "a", "abc", "abcd.", "- é", "é...", "-", "terms of use", "a\rb", "\u2028", "\t"]
some_lines = st.lists(st.sampled_from(LINES), max_size=12)


@given(some_lines)
@pytest.mark.parametrize("made", BY_LINES, ids=lambda made: type(made).__name__)
def test_scores_do_not_depend_on_the_kind_of_line_end(made, lines):
    unix, windows = "\n".join(lines), "\r\n".join(lines)
    mixed = "".join(line + ("\n", "\r\n")[i % 2] for i, line in enumerate(lines)).removesuffix("\n").removesuffix("\r")
    scores = made.score_batch(Texts.of([unix, windows, mixed if lines else ""])).tolist()
    assert scores[0] == scores[1] == scores[2]


@given(some_lines)
def test_modifiers_of_lines_do_the_same_to_both_kinds(lines):
    unix, windows = "\n".join(lines), "\r\n".join(lines)
    for made in (LineRemover(["abc", "a"]), BoilerPlateStringModifier(), C4Lines(min_words=1, end_marks=False)):
        one, other = made.modify_document(unix), made.modify_document(windows)
        assert one == re.sub("\r\n", "\n", other)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b", ""]),
        ("a\r\r\nb\r", ["a\r", "b\r"]),
        ("a\rb\u2028c\x0bd\x85e", ["a\rb\u2028c\x0bd\x85e"]),
    ],
)
def test_what_ends_a_line(text, lines):
    assert lines_in(text) == lines
    assert _longest_line(text) == max(map(len, lines))
    visible = [line for line in lines if line.strip()]
    assert Texts.of([text]).lines.count.tolist() == [len(visible)]
    assert Texts.of([text]).lines.chars.tolist() == [sum(map(len, visible))]
