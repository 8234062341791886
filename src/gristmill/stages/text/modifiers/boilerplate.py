"""Paragraphs about cookies, privacy and terms."""

from __future__ import annotations

import re

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier, raw

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
