"""Modifiers that remove or cut parts of texts: lines, paragraphs, addresses, marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.lines import LINE_END, lines_in
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier, raw

URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)


@builtin
class UrlRemover(DocumentModifier):
    """Removes addresses that begin with http://, https:// or www., up to the next space."""

    triggers = (rb"://", rb"[wW][wW][wW]\.")

    def modify_document(self, text: str) -> str:
        text, number = URL.subn("", text)
        self.count("removed url", number)
        return text


@builtin
class LineRemover(DocumentModifier):
    """Removes each line that equals one of ``patterns``: texts, not regular expressions."""

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, str):
            raise TypeError(f"LineRemover takes a list of lines, not one text: use [{patterns!r}].")
        self.lines = frozenset(patterns)
        self.triggers = tuple(re.escape(line.encode()) for line in sorted(self.lines))

    def modify_document(self, text: str) -> str:
        lines = lines_in(text)
        stays = [line not in self.lines for line in lines]
        if all(stays):
            return text
        self.count("removed line", len(lines) - sum(stays))
        ends = ["", *LINE_END.findall(text)]  # the line end before each line
        kept = [part for pair in zip(ends, lines, stays, strict=True) if pair[2] for part in pair[:2]]
        return "".join(kept[1:])


@builtin
class Slicer(DocumentModifier):
    """Keeps the part of a text from ``left`` up to ``right``.

    A number is a place as in Python's slices. A text is searched: the first ``left``, the last ``right``. A document
    without it becomes empty. It stays in the result unless ``include_left`` or ``include_right`` is False.
    """

    def __init__(
        self,
        left: int | str | None = 0,
        right: int | str | None = None,
        include_left: bool = True,
        include_right: bool = True,
        strip: bool = True,
    ) -> None:
        self.left = left
        self.right = right
        self.include_left = include_left
        self.include_right = include_right
        self.strip = strip

    def modify_document(self, text: str) -> str:
        left, right = self.left, self.right
        if isinstance(left, str):
            found = text.find(left)
            if found < 0:
                return ""
            left = found if self.include_left else found + len(left)
        if isinstance(right, str):
            found = text.rfind(right)
            if found < 0:
                return ""
            right = found + len(right) if self.include_right else found
        part = text[left:right]
        return part.strip() if self.strip else part


@builtin
class FastTextLabelModifier(DocumentModifier):
    """Makes a line of training data for fastText: the label, a space, the text without newlines and labels."""

    def __init__(self, label: str) -> None:
        self.label = label

    def modify_document(self, text: str) -> str:
        return f"{self.label} {text.replace(chr(10), ' ').replace('__label__', ' ')}"


END_MARKS = (".", "?", "!", '"')
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")


@builtin
class C4Lines(DocumentModifier):
    """Keeps the lines that C4 keeps: with enough words and an end mark, and not about the page itself.

    A line is removed if it has a word of more than ``max_word_length`` characters, does not end in a terminal mark (or
    ends in an ellipsis), has fewer than ``min_words`` words, or mentions JavaScript or policies. Wikipedia's citation
    marks and white space around lines are removed from the others.
    """

    def __init__(
        self,
        min_words: int = 5,
        max_word_length: int = 1000,
        end_marks: bool = True,
        javascript: bool = True,
        policies: bool = True,
        citations: bool = True,
    ) -> None:
        self.min_words = min_words
        self.max_word_length = max_word_length
        self.end_marks = end_marks
        self.unwanted = (("javascript",) if javascript else ()) + (POLICIES if policies else ())
        self.citations = citations

    def modify_document(self, text: str) -> str:
        kept = (self._line(line.strip()) for line in lines_in(text))
        return "\n".join(line for line in kept if line is not None)

    def _line(self, line: str) -> str | None:
        if len(line) > self.max_word_length and any(len(word) > self.max_word_length for word in line.split()):
            return None
        if self.citations and "[" in line:
            line = _CITATION.sub("", line).rstrip()
        if self.end_marks and (not line.endswith(END_MARKS) or line.endswith("...")):
            return None
        if len(line.split()) < self.min_words:
            return None
        lowered = line.lower()
        return None if any(phrase in lowered for phrase in self.unwanted) else line


POLICY = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "privacy & cookies policy",
    "privacy and cookies policy",
    "necessary cookies are absolutely essential",
    "cookies that may not be particularly necessary",
    "without changing your cookie settings",
)
"""Phrases of such paragraphs in lower case (C4). Whole sentences are given by their distinctive words."""
PLACEHOLDER = "lorem ipsum"
EMPTY_LINE = re.compile("(\r?\n\r?\n)")
SIGNS = (b"cookie", b"privacy", b"terms of use", PLACEHOLDER.encode())
"""Each phrase contains one of these."""


@builtin
class BoilerPlateStringModifier(DocumentModifier):
    """Removes paragraphs about cookies, privacy policies and terms of use at the top and bottom of a text (C4).

    A text that has them in its middle, or consists only of them, stays. With ``remove_if_at_top_or_bottom=False`` a
    text with any of them becomes empty, and always a text with "lorem ipsum", so that a later filter drops it.
    Paragraphs are separated by empty lines.
    """

    def __init__(self, remove_if_at_top_or_bottom: bool = True) -> None:
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom

    def candidates(self, texts: Texts) -> Array:
        low = (bytes(text).lower() for text in raw(texts))
        return np.fromiter((any(sign in text for sign in SIGNS) for text in low), dtype=bool, count=len(texts))

    def modify_document(self, text: str) -> str:
        parts = EMPTY_LINE.split(text)  # paragraphs, and what is between them
        paragraphs = parts[::2]
        is_policy = []
        for paragraph in paragraphs:
            low = paragraph.lower()
            if PLACEHOLDER in low:
                self.count("emptied document")
                return ""
            is_policy.append(any(phrase in low for phrase in POLICY))
        if not any(is_policy):
            return text
        if not self.remove_if_at_top_or_bottom:
            self.count("emptied document")
            return ""
        if all(is_policy):
            return text
        start = is_policy.index(False)
        end = len(is_policy) - is_policy[::-1].index(False)
        if any(is_policy[start:end]):
            return text
        self.count("removed boilerplate paragraph", sum(is_policy))
        return "".join(parts[2 * start : 2 * end - 1])


# The text between marks may not contain the mark itself, so no text is searched twice.
# Each pattern begins with its mark and looks back from there: that is much faster to search.
STARS = re.compile(r"\*(?<!\*\*)(\*{0,2})([^\s*](?:[^*\n]*[^\s*])?)\*\1(?!\*)")
UNDERSCORES = re.compile(r"_(?<!\w_)(_?)([^\s_](?:[^_\n]*[^\s_])?)_\1(?!\w)")
LINK = re.compile(r'\[([^\[\]\n]*)\]\(([^()\s]*)(?:[ \t]+"[^"\n]*")?\)')
IMAGE = re.compile("!" + LINK.pattern)
HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)


@builtin
class MarkdownRemover(DocumentModifier):
    """Removes the marks of bold, italic and underlined text and of links, with ``headings`` also of headings.

    The address of a link or an image stays, or its text with ``links="text"``. Only marks that Markdown recognizes are
    removed: ``2 * 3 * 4`` and ``snake_case_name`` stay.
    """

    triggers: tuple[bytes, ...] = (rb"[*_]", rb"\]\(")

    def __init__(self, links: Literal["url", "text"] = "url", headings: bool = False) -> None:
        if links not in ("url", "text"):
            raise ValueError(f"MarkdownRemover: links must be 'url' or 'text', not {links!r}.")
        self.links = links
        self.headings = headings
        if headings:
            self.triggers = (rb"[*_#]", rb"\]\(")

    def modify_document(self, text: str) -> str:
        if "](" in text:
            kept = r"\2" if self.links == "url" else r"\1"
            text = LINK.sub(kept, IMAGE.sub(kept, text))
        if "*" in text:
            text = STARS.sub(r"\2", STARS.sub(r"\2", text))  # twice: italic within bold
        if "_" in text:
            text = UNDERSCORES.sub(r"\2", text)
        return HEADING.sub("", text) if self.headings else text
