"""Filters for source code. Rules and defaults are those of StarCoder (https://arxiv.org/abs/2305.06161), by way of
NeMo Curator, with whose classes these share names and arguments.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.kernels import code_points
from gristmill.kernels.code_points import alphabetic, count_in, newline, table_of
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.code_comments import comment_length
from gristmill.stages.text.filters.code_html import text_length
from gristmill.stages.text.filters.code_languages import syntax_of
from gristmill.stages.text.filters.code_python import natural_length
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.lines import lines_in

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


class _CommentRatio(DocumentFilter):
    """The share of a file's characters that are comments, between two bounds."""

    def __init__(self, minimum: float, maximum: float) -> None:
        if not minimum <= maximum:
            raise ValueError(
                f"{type(self).__name__}: the least share, {minimum!r}, is above the greatest, {maximum!r}."
            )
        self.minimum = minimum
        self.maximum = maximum

    def comment_characters(self, source: str) -> int:
        raise NotImplementedError

    def score_document(self, text: str) -> float:
        return self.comment_characters(text) / max(len(text), 1)

    def keep_batch(self, scores: Array) -> Array:
        return (scores >= self.minimum) & (scores <= self.maximum)

    def reasons(self, scores: Array) -> list[str]:
        return ["too few comments" if score < self.minimum else "too many comments" for score in scores]

    def rule(self) -> str:
        return f"{self.minimum:.3g} to {self.maximum:.3g} of the characters are comments"


@builtin
class PythonCommentToCodeFilter(_CommentRatio):
    """Keep Python of which a share between the bounds is comments (with their ``#``) and docstrings (without quotes).

    Code that does not compile is read like any other; NeMo Curator gives it the score 0, and leaves out the docstrings
    of ``async`` functions. An empty file has the score 0.
    """

    name = "python_comment_ratio"

    def __init__(self, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85) -> None:
        super().__init__(min_comment_to_code_ratio, max_comment_to_code_ratio)

    def comment_characters(self, source: str) -> int:
        return natural_length(source)


@builtin
class GeneralCommentToCodeFilter(_CommentRatio):
    """Keep code of which a share between the bounds is comments, without the signs that mark them, joined by spaces.

    ``language`` is a name or a MIME type: ``"rust"``, ``"text/x-c++"``. Signs within strings begin no comment. A
    comment that does not end is one to the end of the file; NeMo Curator gives such a file the score 9999, and knows
    fewer languages. An empty file has the score 0.
    """

    name = "comment_ratio"

    def __init__(
        self, language: str, min_comment_to_code_ratio: float = 0.01, max_comment_to_code_ratio: float = 0.85
    ) -> None:
        super().__init__(min_comment_to_code_ratio, max_comment_to_code_ratio)
        self.language = language
        self.syntax = syntax_of(language)

    def comment_characters(self, source: str) -> int:
        return comment_length(source, self.syntax)


@builtin
class NumberOfLinesOfCodeFilter(DocumentFilter):
    """Keep files of ``min_lines`` to ``max_lines`` lines. An empty file has one line; so has one without a newline."""

    name = "num_lines"

    def __init__(self, min_lines: int = 10, max_lines: int = 20000) -> None:
        self.min_lines = min_lines
        self.max_lines = max_lines

    def preload(self) -> None:
        code_points.preload()

    def score_batch(self, texts: Texts) -> Array:
        _, newlines = count_in(texts, newline())
        return newlines + 1

    def keep_batch(self, scores: Array) -> Array:
        return (scores >= self.min_lines) & (scores <= self.max_lines)

    def reasons(self, scores: Array) -> list[str]:
        return ["too few lines" if score < self.min_lines else "too many lines" for score in scores]

    def rule(self) -> str:
        return f"{self.min_lines} to {self.max_lines} lines"


@builtin
class AlphaFilter(DocumentFilter):
    """Keep files of which at least ``min_alpha_ratio`` is letters: others hold tables and tensors.

    Letters are those of all scripts, with their vowel signs. An empty file has the score 0.
    """

    name = "alpha_filter"

    def __init__(self, min_alpha_ratio: float = 0.25) -> None:
        self.min_alpha_ratio = min_alpha_ratio

    def preload(self) -> None:
        code_points.preload()
        alphabetic()

    def score_batch(self, texts: Texts) -> Array:
        return _share(texts, alphabetic())

    def keep_batch(self, scores: Array) -> Array:
        return scores >= self.min_alpha_ratio

    def reasons(self, scores: Array) -> str:
        return "too few letters"

    def rule(self) -> str:
        return f"at least {self.min_alpha_ratio:.3g} of the characters are letters"


@builtin
class XMLHeaderFilter(DocumentFilter):
    """Drop files with an XML header in their first characters: their extension says that they are something else."""

    name = "xml_header"

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

    def rule(self) -> str:
        return f"no XML header in the first {self.char_prefix_search_length} characters"


@builtin
class HTMLBoilerplateFilter(DocumentFilter):
    """Keep HTML of which at least ``min_lang_content_ratio``, and ``min_lang_content_num_chars`` characters, is text.

    Text is what is left without tags, comments, scripts and styles; space between two tags counts as one character,
    however much it is. Pages with less text than that have the score 0.
    """

    name = "html_boilerplate"

    def __init__(self, min_lang_content_ratio: float = 0.2, min_lang_content_num_chars: int = 100) -> None:
        self.min_lang_content_ratio = min_lang_content_ratio
        self.min_lang_content_num_chars = min_lang_content_num_chars

    def score_document(self, text: str) -> float:
        seen = text_length(text)
        return seen / len(text) if text and seen >= self.min_lang_content_num_chars else 0.0

    def keep_batch(self, scores: Array) -> Array:
        return scores >= self.min_lang_content_ratio

    def reasons(self, scores: Array) -> list[str]:
        return ["too little text" if score == 0 else "mostly markup" for score in scores]

    def rule(self) -> str:
        share, least = self.min_lang_content_ratio, self.min_lang_content_num_chars
        return f"at least {share:.3g} of the page, and {least} characters, is text"


@dataclass(frozen=True, slots=True)
class ExtensionRule:
    """What a table says of the files of a language with an extension; None where it says nothing."""

    include: bool
    max_line: int | None = None
    mean_line: int | None = None
    alphanumeric: float | None = None
    alphabetic: float | None = None


@builtin
class PerExtensionFilter(DocumentFilter):
    """Keep files by thresholds that a table has for their language and extension.

    ``metadata_file`` is a CSV file with the columns of BigCode's table: ``language``, ``extension``, ``Include`` (1 or
    else), ``Long_line_threshold``, ``Alphanum_threshold``, ``Alpha filter``. A file goes where its language and
    extension are not included, a line is longer than the threshold, lines have more than 100 characters on average
    (asked only where there is a threshold for lines), or too few characters are alphanumeric or letters. The score is 1
    for files that stay, and from 0 down for others, by the reason.
    """

    name = "per_extension_filter"

    REASONS = {
        0: "extension not included",
        -1: "line too long",
        -2: "lines too long on average",
        -3: "too few alphanumeric characters",
        -4: "too few letters",
    }

    def __init__(self, lang: str, extension: str | None, metadata_file: str = "code_meta.csv") -> None:
        self.lang = lang
        self.extension = extension or ""
        self.extension_rule = _rule_of(metadata_file, lang, self.extension)

    def preload(self) -> None:
        code_points.preload()
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

    def rule(self) -> str:
        return f"{self.lang} files with the extension {self.extension!r}: {self.extension_rule}"


ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,."


def _share(texts: Texts, table: Array) -> Array:
    chars, inside = count_in(texts, table)
    return inside / np.maximum(chars, 1)


def _longest_line(text: str) -> int:
    return max(map(len, lines_in(text)))


def _rule_of(path: str, lang: str, extension: str) -> ExtensionRule:
    """The table's rule; that of a language without the extension is not to include such files."""
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
