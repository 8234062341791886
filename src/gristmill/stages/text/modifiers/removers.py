"""Modifiers that remove parts of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gristmill.stages.registry import builtin
from gristmill.stages.text.lines import LINE_END, lines_in
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

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
