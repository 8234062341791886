"""Markdown to plain text."""

from __future__ import annotations

import re
from typing import Literal

from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

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
