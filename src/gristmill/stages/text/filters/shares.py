"""Filters by shares: of the lines that begin or end in some way, and of the classes of characters.

Blank lines do not count (see `gristmill.stages.text.lines`). Characters are code points; classes are those of Unicode.
"""

from __future__ import annotations

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtMost, ratio


@builtin
class BulletsFilter(AtMost):
    """Drops documents in which too many lines begin with a bullet (Gopher: 90%).

    Bullets are those of NeMo Curator, the hyphen, the asterisk, the en dash and ``▶ ◀ ■ □ ▪ ▫``: plain text has no
    others. A document without lines scores 1 and is dropped.
    """

    name = "bullet_ratio"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines begin with a bullet"
    thresholds = {"max_bullet_lines_ratio": "most"}

    def __init__(self, max_bullet_lines_ratio: float = 0.9) -> None:
        self.most = max_bullet_lines_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.bullets, texts.lines.count, empty=1.0)


@builtin
class PunctuationFilter(AtMost):
    """Drops documents in which too many lines do not end like a sentence (after C4).

    A sentence ends with ``. ? !``, an ellipsis or a quotation mark, or with their counterparts in other scripts; NeMo
    Curator knows ``. ? ! " '``. A document without lines scores 1 and is dropped.
    """

    name = "punctuation"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines end without an end mark"
    thresholds = {"max_num_sentences_without_endmark_ratio": "most"}

    def __init__(self, max_num_sentences_without_endmark_ratio: float = 0.85) -> None:
        self.most = max_num_sentences_without_endmark_ratio

    def score_batch(self, texts: Texts) -> Array:
        lines = texts.lines
        return ratio(lines.count - lines.end_marks, lines.count, empty=1.0)


@builtin
class EllipsisFilter(AtMost):
    """Drops documents in which too many lines end with an ellipsis (Gopher: 30%).

    An ellipsis is ``...``, U+2026 or U+22EF, bare or alone in round or square brackets. NeMo Curator also counts lines
    that end with "read more" or "-»". A document without lines scores 1 and is dropped.
    """

    name = "ellipsis"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines end with an ellipsis"
    thresholds = {"max_num_lines_ending_with_ellipsis_ratio": "most"}

    def __init__(self, max_num_lines_ending_with_ellipsis_ratio: float = 0.3) -> None:
        self.most = max_num_lines_ending_with_ellipsis_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.ellipses, texts.lines.count, empty=1.0)


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
    thresholds = {"max_non_alpha_numeric_to_text_ratio": "most"}

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
    thresholds = {"max_number_to_text_ratio": "most"}

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
    thresholds = {"max_white_space_ratio": "most"}

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
    thresholds = {"max_parentheses_ratio": "most"}

    def __init__(self, max_parentheses_ratio: float = 0.1) -> None:
        self.most = max_parentheses_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.chars.brackets, texts.chars.count, empty=1.0)
