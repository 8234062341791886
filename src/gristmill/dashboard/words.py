"""Texts of documents, names and errors made harmless for the page: cut, and without invisible characters."""

from __future__ import annotations

import unicodedata

from gristmill.secrets import without_secrets

MOST_NAME = 300
"""Characters of a name, a reason or an id."""
MOST_ERROR = 2_000
MOST_TEXT = 4_000
HIDDEN = "not shown"


def visible(text: str, most: int = MOST_NAME) -> str:
    """Return the beginning of a text, with control and format characters as escapes.

    Marks that change the direction of text would make a line read as something else. Line breaks and tabs stay.

    >>> print(visible("pay \\u202eresu\\x07"))
    pay \\u202eresu\\x07
    >>> visible("abcdef", 3)
    'abc… (6 characters)'
    """
    head = text[:most]
    if not head.isprintable():
        head = "".join(c if _is_shown(c) else c.encode("unicode_escape", "backslashreplace").decode() for c in head)
    return head if len(text) <= most else f"{head}… ({len(text):,} characters)"


def _is_shown(char: str) -> bool:
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"


def public(text: str, most: int = MOST_ERROR) -> str:
    """Return a message for the page: visible, and without the secrets of URLs in it."""
    return visible(without_secrets(text[: 4 * most]), most)


def kind_of(error: str) -> str:
    """Return an error without its message, which may hold text of documents.

    >>> kind_of("ValueError: invalid literal for int(): 'text of a document'")
    'ValueError: not shown'
    >>> kind_of("the worker was killed")
    'not shown'
    """
    kind, colon, _ = error.partition(":")
    is_name = bool(colon) and len(kind) <= MOST_NAME and all(part.isidentifier() for part in kind.split("."))
    return f"{kind}: {HIDDEN}" if is_name else HIDDEN
