"""Line ends and spaces."""

from __future__ import annotations

import re

from gristmill.stages.registry import register
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

MANY_NEWLINES = re.compile(r"\n{3,}")
MANY_WINDOWS_NEWLINES = re.compile(r"(?:\r\n){3,}")
OTHER_NEWLINES = re.compile("\r\n?|[\x85\u2028\u2029]")
BLANKS = re.compile(r"[^\S\n]+")


@register
class NewlineNormalizer(DocumentModifier):
    """Leaves at most two newlines in a row, so one empty line; the same for Windows line ends."""

    trigger = rb"\n\n\n|\r\n\r\n\r\n"

    def modify_document(self, text: str) -> str:
        return MANY_WINDOWS_NEWLINES.sub("\r\n\r\n", MANY_NEWLINES.sub("\n\n", text))


@register
class WhitespaceNormalizer(DocumentModifier):
    """Makes each run of spaces, tabs and other blanks one space, and takes it away at ends of lines and of the text.

    Line ends of all kinds become newlines, and their number stays; with ``keep_newlines=False`` they are blanks like
    others and the text becomes one line. Not for code: indentation is lost.
    """

    trigger = rb"[\t\r\v\f\x1c-\x1f\x80-\xff]|  |\n[ ]|[ ]\n|\A\s|\s\Z"

    def __init__(self, keep_newlines: bool = True) -> None:
        self.keep_newlines = keep_newlines
        if not keep_newlines:
            self.trigger = rb"[\t\n\r\v\f\x1c-\x1f\x80-\xff]|  |\A\s|\s\Z"

    def modify_document(self, text: str) -> str:
        if not self.keep_newlines:
            return " ".join(text.split())
        text = BLANKS.sub(" ", OTHER_NEWLINES.sub("\n", text))
        return text.replace(" \n", "\n").replace("\n ", "\n").strip()
