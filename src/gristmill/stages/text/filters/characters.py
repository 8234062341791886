"""Filters by what a document's characters are. Characters are code points; classes are those of Unicode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import Array, AtMost, percent, ratio

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


@builtin
class NonAlphaNumericFilter(AtMost):
    """Drops documents in which too many characters are none of prose.

    Those of prose are letters with their marks and numbers of all scripts, newlines, and ``? ! , .`` with their
    counterparts in other scripts; a space is none. NeMo Curator takes ASCII letters and digits for these only, and so
    drops most text in other scripts. An empty document scores 1 and is dropped.
    """

    name = "alpha_numeric"
    needs = ("chars",)

    def __init__(self, max_non_alpha_numeric_to_text_ratio: float = 0.25) -> None:
        self.most = max_non_alpha_numeric_to_text_ratio

    def score_batch(self, texts: Texts) -> Array:
        chars = texts.chars
        return ratio(chars.count - chars.plain, chars.count, empty=1.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are neither alphanumeric nor newlines nor any of ?!,."


@builtin
class NumbersFilter(AtMost):
    """Drops documents in which too many characters are decimal digits, of any script.

    An empty document scores 1 and is dropped.
    """

    name = "numbers_ratio"
    needs = ("chars",)

    def __init__(self, max_number_to_text_ratio: float = 0.15) -> None:
        self.most = max_number_to_text_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.digits, texts.chars.count, empty=1.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are digits"


@builtin
class WhiteSpaceFilter(AtMost):
    """Drops documents in which too many characters are white space, as `str.isspace` has it.

    NeMo Curator counts tab, newline, carriage return, backspace and the ASCII space. Here the backspace is no white
    space, and that of other scripts is. An empty document scores 1 and is dropped.
    """

    name = "white_space"
    needs = ("chars",)

    def __init__(self, max_white_space_ratio: float = 0.25) -> None:
        self.most = max_white_space_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.spaces, texts.chars.count, empty=1.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are white space"


@builtin
class ParenthesesFilter(AtMost):
    """Drops documents in which too many characters are brackets: round, square, curly, angle, CJK and all others.

    Those of Unicode's categories Ps and Pe but the low quotation marks; NeMo Curator knows ``( ) [ ] { } ⟨ ⟩``.
    What stands between them is not counted. An empty document scores 1 and is dropped.
    """

    name = "parentheses_ratio"
    needs = ("chars",)

    def __init__(self, max_parentheses_ratio: float = 0.1) -> None:
        self.most = max_parentheses_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.brackets, texts.chars.count, empty=1.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are brackets"
