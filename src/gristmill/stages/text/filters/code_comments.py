"""Find comments in source code, also in broken code, in time proportional to its length.

A scanner knows for a language what begins and ends comments, and what hides these marks: strings, regular expressions,
here-documents. Everything else is skipped. Nothing is an error: an unclosed comment or string ends with the text, or
with the line in languages that end it there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LOST_TAGS = 50
"""Unclosed here-documents that are tried in a document; for each the rest of the text is searched."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of comments in a language. Patterns are regular expressions and must match in linear time."""

    line: tuple[str, ...] = ()
    """Begins of comments that end with the line."""

    block: tuple[tuple[str, str], ...] = ()
    """Begin and end of comments that may span lines."""

    literals: tuple[str, ...] = ()
    """Whole strings and the like, which hide comment marks. Without an end they match to the end of the text."""

    nested: bool = False
    """Whether comments that span lines may be nested."""

    heredocs: bool = False
    """Whether there are here-documents: ``<<TAG``, lines, ``TAG``."""


def comments(source: str, syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each comment, without its marks."""
    find = _scanner(syntax).search
    position = lost = 0
    while match := find(source, position):
        position = max(match.end(), match.start() + 1)
        kind = match.lastgroup
        if kind and kind.startswith("comment"):
            yield match.span(kind)
        elif kind and kind.startswith("nested"):
            block = syntax.block[int(kind.removeprefix("nested"))]
            end, position = _end_of_nested(source, match.end(), *block)
            yield match.end(), end
        elif kind == "tag" and lost < MAX_LOST_TAGS:
            end_tag = re.compile(rf"^[ \t]*{re.escape(match['tag'])}\b", re.MULTILINE).search(source, position)
            if end_tag:
                position = end_tag.end()
            else:
                lost += 1


def comment_length(source: str, syntax: Syntax) -> int:
    """Return the number of characters of all comments, without their marks, joined by spaces."""
    return max(sum(end - start + 1 for start, end in comments(source, syntax)) - 1, 0)


@functools.cache
def _scanner(syntax: Syntax) -> re.Pattern[str]:
    parts = []
    for i, (begin, end) in enumerate(syntax.block):
        if syntax.nested:
            parts.append(rf"{begin}(?P<nested{i}>)")
        else:
            parts.append(rf"{begin}(?P<comment_block{i}>.*?)(?:{end}|\Z)")
    parts += [rf"{begin}(?P<comment_line{i}>[^\r\n]*+)" for i, begin in enumerate(syntax.line)]
    if syntax.heredocs:
        parts.append(r"""<<[~-]?(?P<quote>["']?)(?P<tag>[A-Za-z_]\w{0,63})(?P=quote)""")
    parts += syntax.literals
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL | re.MULTILINE)


def _end_of_nested(source: str, position: int, begin: str, end: str) -> tuple[int, int]:
    """Return where the content of a nested comment ends, and where the code after it begins."""
    depth = 1
    for match in _edges(begin, end).finditer(source, position):
        depth += 1 if match.lastgroup == "begin" else -1
        if not depth:
            return match.span()
    return len(source), len(source)


@functools.cache
def _edges(begin: str, end: str) -> re.Pattern[str]:
    return re.compile(f"(?P<begin>{begin})|(?P<end>{end})")
