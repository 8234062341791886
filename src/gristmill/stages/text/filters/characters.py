"""Filters by the classes of characters. Characters are code points; classes are those of Unicode."""

from __future__ import annotations

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import AtMost, ratio


@builtin
class NonAlphaNumericFilter(AtMost):
    """Drops documents in which too many characters are not those of prose.

    Characters of prose are letters with their marks and numbers of all scripts, newlines, and ``? ! , .`` with their
    counterparts in other scripts; spaces are not. NeMo Curator counts only ASCII letters and digits as letters and
    digits, so it drops most text in other scripts. An empty document scores 1 and is dropped.
    """

    name = "alpha_numeric"
    needs = ("chars",)
    rule_text = "at most {0.percent} of the characters are neither alphanumeric nor newlines nor any of ?!,."

    def __init__(self, max_non_alpha_numeric_to_text_ratio: float = 0.25) -> None:
        self.most = max_non_alpha_numeric_to_text_ratio

    def score_batch(self, texts: Texts) -> Array:
        chars = texts.chars
        return ratio(chars.count - chars.plain, chars.count, empty=1.0)


@builtin
class NumbersFilter(AtMost):
    """Drops documents in which too many characters are decimal digits, of any script.

    An empty document scores 1 and is dropped.
    """

    name = "numbers_ratio"
    needs = ("chars",)
    rule_text = "at most {0.percent} of the characters are digits"

    def __init__(self, max_number_to_text_ratio: float = 0.15) -> None:
        self.most = max_number_to_text_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.digits, texts.chars.count, empty=1.0)


@builtin
class WhiteSpaceFilter(AtMost):
    """Drops documents in which too many characters are white space, as in `str.isspace`.

    NeMo Curator counts tab, newline, carriage return, backspace and the ASCII space. Here the backspace is not white
    space, and white space of other scripts is. An empty document scores 1 and is dropped.
    """

    name = "white_space"
    needs = ("chars",)
    rule_text = "at most {0.percent} of the characters are white space"

    def __init__(self, max_white_space_ratio: float = 0.25) -> None:
        self.most = max_white_space_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.spaces, texts.chars.count, empty=1.0)


@builtin
class ParenthesesFilter(AtMost):
    """Drops documents in which too many characters are brackets: round, square, curly, angle, CJK and all others.

    These are Unicode's categories Ps and Pe without the low quotation marks. NeMo Curator knows ``( ) [ ] { } ⟨ ⟩``.
    The text between them is not counted. An empty document scores 1 and is dropped.
    """

    name = "parentheses_ratio"
    needs = ("chars",)
    rule_text = "at most {0.percent} of the characters are brackets"

    def __init__(self, max_parentheses_ratio: float = 0.1) -> None:
        self.most = max_parentheses_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.brackets, texts.chars.count, empty=1.0)
