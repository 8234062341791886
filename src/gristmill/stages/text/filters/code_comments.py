"""Finds comments in source code, also where it is broken, in time that grows with its length and no faster.

A scanner knows of a language what begins and ends comments, and what hides their signs: strings, regular expressions,
here-documents. All else is skipped. Nothing is ever an error: a comment or string that does not end goes on to the end
of the text (of the line, where the language has it so).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LOST_TAGS = 50
"""Here-documents without an end that are looked for in a document; each costs a look at the rest of it."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a scanner knows of a language. Patterns are regular expressions and must match in linear time."""

    line: tuple[str, ...] = ()
    """What begins a comment that goes on to the end of the line."""

    block: tuple[tuple[str, str], ...] = ()
    """What begins and what ends a comment of many lines."""

    literals: tuple[str, ...] = ()
    """What hides comment signs: whole strings and the like. They match to the end of the text where no end is found."""

    nested: bool = False
    """Whether comments of many lines stand within others."""

    heredocs: bool = False
    """Whether there are here-documents: ``<<TAG``, lines, ``TAG``."""


def comments(source: str, syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Where the comments are: begin and end of each without the signs that mark it."""
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
    """How many characters the comments of the source have, without the signs that mark them, joined by spaces."""
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
    """Where the content of a nested comment ends, and where what follows it begins."""
    depth = 1
    for match in _edges(begin, end).finditer(source, position):
        depth += 1 if match.lastgroup == "begin" else -1
        if not depth:
            return match.span()
    return len(source), len(source)


@functools.cache
def _edges(begin: str, end: str) -> re.Pattern[str]:
    return re.compile(f"(?P<begin>{begin})|(?P<end>{end})")
