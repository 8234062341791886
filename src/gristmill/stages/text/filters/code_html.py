"""The text of a page: HTML without tags, scripts, styles and comments."""

from __future__ import annotations

import html
import re

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
