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
    """How many characters a reader of the page may see, references such as ``&amp;`` as the one that they stand for."""
    return len(html.unescape(MARKUP.sub("", source)))
