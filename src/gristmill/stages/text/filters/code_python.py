"""Comments and docstrings of Python, also of Python 2 and of code that does not compile.

The scanner does not use `tokenize` and `ast`: they refuse broken code, and versions of Python differ in what they
accept.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator

from gristmill.stages.text.filters.code_languages import DOUBLE, SINGLE, TRIPLE_DOUBLE, TRIPLE_SINGLE

TOKEN = re.compile(rf"(?P<comment>\#[^\r\n]*+)|{TRIPLE_DOUBLE}|{TRIPLE_SINGLE}|{DOUBLE}|{SINGLE}", re.DOTALL)
HEADER = re.compile(r"^[ \t]*+(?:async[ \t]++)?(?:def|class)\b", re.MULTILINE)
SIGN = re.compile(r"[()\[\]{}:\n]")
STRING = "\0"
"""The placeholder of a string in the skeleton of a program."""
DOCSTRING = re.compile(rf"(?:\s|\\\r?\n)*+[rRuU]?({STRING})(?=(?:[ \t]*+{STRING})*+[ \t]*+(?:[\r\n;]|\Z))")
"""A string that is a statement. Byte strings and formatted strings do not match because of their prefix."""


def natural_length(source: str) -> int:
    """Return the characters of comments, with ``#``, and of docstrings, without quotes and indentation."""
    skeleton, strings, length = skeleton_of(source)
    return length + sum(map(len, docstrings(skeleton, strings)))


def skeleton_of(source: str) -> tuple[str, list[str], int]:
    """Return the program without comments and with placeholders for strings, the strings, and the comments' length."""
    parts: list[str] = []
    strings: list[str] = []
    comments = position = 0
    for match in TOKEN.finditer(source):
        parts.append(source[position : match.start()].replace(STRING, " "))
        position = match.end()
        if match.lastgroup == "comment":
            comments += position - match.start()
        else:
            parts.append(STRING)
            strings.append(match[0])
    parts.append(source[position:].replace(STRING, " "))
    return "".join(parts), strings, comments


def docstrings(skeleton: str, strings: list[str]) -> Iterator[str]:
    """Yield the text of the first string of the module, of each class and of each function."""
    number = position = 0
    for start in _bodies(skeleton):
        if match := DOCSTRING.match(skeleton, start):
            number += skeleton.count(STRING, position, match.start(1))
            position = match.start(1)
            yield _text(strings[number])


def _bodies(skeleton: str) -> Iterator[int]:
    """Yield where the module and the bodies of its classes and functions begin, in order."""
    yield 1 if skeleton.startswith("\ufeff") else 0
    headers = [match.span() for match in HEADER.finditer(skeleton)]
    headers.append((len(skeleton), len(skeleton)))
    for (_, end), (limit, _) in itertools.pairwise(headers):
        depth = 0
        for sign in SIGN.finditer(skeleton, end, limit):
            if sign[0] in "([{":
                depth += 1
            elif sign[0] in ")]}":
                depth -= 1
            elif depth <= 0:
                if sign[0] == ":":
                    yield sign.end()
                break


def _text(literal: str) -> str:
    """Return the text between the quotes, without indentation."""
    width = 3 if literal.startswith(('"""', "'''")) else 1
    return inspect.cleandoc(literal[width:].removesuffix(literal[:width]))
