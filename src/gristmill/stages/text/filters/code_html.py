"""The text of a page: what is left of HTML without tags, scripts, styles and comments."""

from __future__ import annotations

import html
import re

# Each alternative goes on to the end of the text where no end is found: what is broken is read once, not over again.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<unseen>script|style|template)(?=[\s/>]).*?(?:</(?P=unseen)(?=[\s/>])[^>]*+(?:>|\Z)|\Z)"
    r"|<[A-Za-z/](?:=\s*+\"[^\"]*+(?:\"|\Z)|=\s*+'[^']*+(?:'|\Z)|[^>])*+(?:>|\Z)"
    r"|<[!?][^>]*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


def text_length(source: str) -> int:
    """How many characters a reader of the page may see.

    References such as ``&amp;`` are the character that they stand for; nothing but space between two tags is one space.
    """
    length = position = 0
    for match in MARKUP.finditer(source):
        length += _seen(source[position : match.start()])
        position = match.end()
    return length + _seen(source[position:])


def _seen(text: str) -> int:
    return min(len(text), 1) if not text or text.isspace() else len(html.unescape(text))
