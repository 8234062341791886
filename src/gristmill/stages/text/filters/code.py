"""Filters for source code, with the rules and defaults of StarCoder (https://arxiv.org/abs/2305.06161).

Names of classes and arguments are those of NeMo Curator.
"""

from __future__ import annotations

import csv
import html
import re
from dataclasses import dataclass

from gristmill.kernels import unicode
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import alphabetic, count_in, newline, table_of
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, DocumentFilter, InRange
from gristmill.stages.text.lines import lines_in


class _CommentRatio(InRange):
    """The share of a file's characters that are comments, between two bounds."""

    below = "too few comments"
    above = "too many comments"
    rule_text = "{0.least:.3g} to {0.most:.3g} of the characters are comments"

    def __init__(self, least: float, most: float) -> None:
        if not least <= most:
            raise ValueError(f"{type(self).__name__}: the least share, {least!r}, is above the greatest, {most!r}.")
        self.least = least
        self.most = most

    def preload(self) -> None:
        from gristmill.stages.text.filters import code_comments  # noqa: F401  # few pipelines need the module

    def comment_characters(self, source: str) -> int:
        raise NotImplementedError

    def score_document(self, text: str) -> float:
        return self.comment_characters(text) / max(len(text), 1)


@builtin
class PythonCommentToCodeFilter(_CommentRatio):
    """Keep Python in which the share of comments (with ``#``) and docstrings (without quotes) is between two bounds.

    Code that does not compile is read like any other code; NeMo Curator gives it the score 0, and skips the docstrings
    of ``async`` functions. An empty file has the score 0.
    """

    name = "python_comment_ratio"
    thresholds = {"min_comment_to_code_ratio": "least", "max_comment_to_code_ratio": "most"}

    def __init__(self, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85) -> None:
        super().__init__(min_comment_to_code_ratio, max_comment_to_code_ratio)

    def comment_characters(self, source: str) -> int:
        from gristmill.stages.text.filters.code_comments import natural_length

        return natural_length(source)


@builtin
class GeneralCommentToCodeFilter(_CommentRatio):
    """Keep code in which the share of comments, without their marks and joined by spaces, is between two bounds.

    ``language`` is a name or a MIME type: ``"rust"``, ``"text/x-c++"``. Marks in strings do not begin a comment. An
    unclosed comment ends with the file; NeMo Curator gives such a file the score 9999, and knows fewer languages. An
    empty file has the score 0.
    """

    name = "comment_ratio"
    thresholds = {"min_comment_to_code_ratio": "least", "max_comment_to_code_ratio": "most"}

    def __init__(
        self, language: str, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85
    ) -> None:
        from gristmill.stages.text.filters.code_comments import syntax_of

        super().__init__(min_comment_to_code_ratio, max_comment_to_code_ratio)
        self.language = language
        self.syntax = syntax_of(language)

    def comment_characters(self, source: str) -> int:
        from gristmill.stages.text.filters.code_comments import comment_length

        return comment_length(source, self.syntax)


@builtin
class NumberOfLinesOfCodeFilter(InRange):
    """Keep files of ``min_lines`` to ``max_lines`` lines. A file without a newline has one line."""

    name = "num_lines"
    below = "too few lines"
    above = "too many lines"
    rule_text = "{0.least} to {0.most} lines"
    thresholds = {"min_lines": "least", "max_lines": "most"}

    def __init__(self, min_lines: int = 10, max_lines: int = 20000) -> None:
        self.least = min_lines
        self.most = max_lines

    def preload(self) -> None:
        unicode.preload()

    def score_batch(self, texts: Texts) -> Array:
        _, newlines = count_in(texts, newline())
        return newlines + 1


@builtin
class AlphaFilter(AtLeast):
    """Keep files with at least ``min_alpha_ratio`` letters: files with fewer contain tables and tensors.

    Letters are those of all scripts, with their vowel signs. An empty file has the score 0.
    """

    name = "alpha_filter"
    rule_text = "at least {0.least:.3g} of the characters are letters"
    thresholds = {"min_alpha_ratio": "least"}

    def __init__(self, min_alpha_ratio: float = 0.25) -> None:
        self.least = min_alpha_ratio

    def preload(self) -> None:
        unicode.preload()
        alphabetic()

    def score_batch(self, texts: Texts) -> Array:
        return _share(texts, alphabetic())

    def reasons(self, scores: Array) -> str:
        return "too few letters"


@builtin
class XMLHeaderFilter(DocumentFilter):
    """Drop files with an XML header in their first characters: their extension is wrong."""

    name = "xml_header"
    rule_text = "no XML header in the first {0.char_prefix_search_length} characters"

    def __init__(self, char_prefix_search_length: int = 100) -> None:
        self.char_prefix_search_length = char_prefix_search_length

    def score_batch(self, texts: Texts) -> Array:
        longest = 4 * max(self.char_prefix_search_length, 0)
        scores = np.zeros(len(texts), dtype=np.int64)
        for i, (start, end) in enumerate(zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)):
            begin = texts.data[start : min(end, start + longest)].tobytes()
            if b"<?xml version=" in begin:
                prefix = begin.decode("utf-8", errors="ignore")[: self.char_prefix_search_length]
                scores[i] = "<?xml version=" in prefix
        return scores

    def keep_batch(self, scores: Array) -> Array:
        return scores != 1

    def reasons(self, scores: Array) -> str:
        return "XML header"


@builtin
class HTMLBoilerplateFilter(AtLeast):
    """Keep HTML with at least ``min_lang_content_ratio`` text, and ``min_lang_content_num_chars`` characters of it.

    Text is everything except tags, comments, scripts and styles. Any white space between two tags counts as one
    character. Pages with fewer characters of text have the score 0.
    """

    name = "html_boilerplate"
    rule_text = "at least {0.least:.3g} of the page, and {0.min_lang_content_num_chars} characters, is text"
    thresholds = {"min_lang_content_ratio": "least"}

    def __init__(self, min_lang_content_ratio: float = 0.2, min_lang_content_num_chars: int = 100) -> None:
        self.least = min_lang_content_ratio
        self.min_lang_content_num_chars = min_lang_content_num_chars

    def score_document(self, text: str) -> float:
        seen = text_length(text)
        return seen / len(text) if text and seen >= self.min_lang_content_num_chars else 0.0

    def reasons(self, scores: Array) -> list[str]:
        return ["too little text" if score == 0 else "mostly markup" for score in scores]


@dataclass(frozen=True, slots=True)
class ExtensionRule:
    """The thresholds of a table for a language and an extension; None for those that the table does not have."""

    include: bool
    max_line: int | None = None
    mean_line: int | None = None
    alphanumeric: float | None = None
    alphabetic: float | None = None


@builtin
class PerExtensionFilter(DocumentFilter):
    """Keep files by the thresholds of a table for their language and extension.

    ``metadata_file`` is a CSV file with the columns of BigCode's table: ``language``, ``extension``, ``Include`` (1 for
    yes), ``Long_line_threshold``, ``Alphanum_threshold``, ``Alpha filter``. A file is dropped if its language and
    extension are not included, a line is longer than the threshold, lines have more than 100 characters on average
    (only if the table has a threshold for lines), or too few characters are alphanumeric or letters. The score is 1 for
    files that stay, and 0 or less for others, by the reason.
    """

    name = "per_extension_filter"

    REASONS = {
        0: "extension not included",
        -1: "line too long",
        -2: "lines too long on average",
        -3: "too few alphanumeric characters",
        -4: "too few letters",
    }
    rule_text = "{0.lang} files with the extension {0.extension!r}: {0.extension_rule}"

    def __init__(self, lang: str, extension: str | None, metadata_file: str = "code_meta.csv") -> None:
        self.lang = lang
        self.extension = extension or ""
        self.extension_rule = _rule_of(metadata_file, lang, self.extension)

    def preload(self) -> None:
        unicode.preload()
        alphabetic()

    def score_batch(self, texts: Texts) -> Array:
        rule = self.extension_rule
        scores = np.ones(len(texts), dtype=np.int64)
        if not rule.include:
            return np.zeros(len(texts), dtype=np.int64)

        def where(dropped: Array, score: int) -> None:
            scores[dropped & (scores == 1)] = score

        if rule.max_line:
            where(np.fromiter(map(_longest_line, texts.strings()), np.int64, len(texts)) > rule.max_line, -1)
        if rule.mean_line:
            chars, newlines = count_in(texts, newline())
            chars = chars - np.fromiter((text.count("\r\n") for text in texts.strings()), np.int64, len(texts))
            where((chars + 1) / (newlines + 1) - 1 > rule.mean_line, -2)
        if rule.alphanumeric:
            where(_share(texts, table_of(map(ord, ALPHANUMERIC))) < rule.alphanumeric, -3)
        if rule.alphabetic:
            where(_share(texts, alphabetic()) < rule.alphabetic, -4)
        return scores

    def keep_batch(self, scores: Array) -> Array:
        return scores > 0

    def reasons(self, scores: Array) -> list[str]:
        return [self.REASONS.get(int(score), self.name) for score in scores]


ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,."


def _share(texts: Texts, table: Array) -> Array:
    chars, inside = count_in(texts, table)
    return inside / np.maximum(chars, 1)


def _longest_line(text: str) -> int:
    return max(map(len, lines_in(text)))


def _rule_of(path: str, lang: str, extension: str) -> ExtensionRule:
    """Return the table's rule. Files with an extension that the table does not have are not included."""
    language = {"C#": "c-sharp", "F#": "f-sharp"}.get(lang, lang.lower().replace(" ", "-"))
    with open(path, encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("language") == language]
    if not rows:
        raise ValueError(f"PerExtensionFilter: the table {path} has no row for the language {language!r}.")
    for row in rows:
        if row["extension"] == extension:
            longest = _number(row["Long_line_threshold"])
            return ExtensionRule(
                include=row["Include"] == "1",
                max_line=int(longest) if longest else None,
                mean_line=100 if longest else None,
                alphanumeric=_number(row["Alphanum_threshold"]),
                alphabetic=_number(row["Alpha filter"]),
            )
    return ExtensionRule(include=False)


def _number(cell: str | None) -> float | None:
    try:
        return float(cell or "")
    except ValueError:
        return None


# Without an end each alternative matches to the end of the text, so broken markup is read only once.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<unseen>script|style|template)(?=[\s/>]).*?(?:</(?P=unseen)(?=[\s/>])[^>]*+(?:>|\Z)|\Z)"
    r"|<[A-Za-z/](?:=\s*+\"[^\"]*+(?:\"|\Z)|=\s*+'[^']*+(?:'|\Z)|[^>])*+(?:>|\Z)"
    r"|<[!?][^>]*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


def text_length(source: str) -> int:
    """Return the number of characters that a reader of the page may see.

    A reference such as ``&amp;`` counts as its character. White space alone between two tags counts as one space.
    """
    length = position = 0
    for match in MARKUP.finditer(source):
        length += _seen(source[position : match.start()])
        position = match.end()
    return length + _seen(source[position:])


def _seen(text: str) -> int:
    return min(len(text), 1) if not text or text.isspace() else len(html.unescape(text))
