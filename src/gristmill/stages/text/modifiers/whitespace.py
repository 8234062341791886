"""Line ends and spaces."""

from __future__ import annotations

import re

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

MANY_NEWLINES = re.compile(r"\n{3,}")
MANY_WINDOWS_NEWLINES = re.compile(r"(?:\r\n){3,}")
OTHER_NEWLINES = re.compile("\r\n?|[\x85\u2028\u2029]")
OTHER_BLANKS = re.compile(r"[^\S\n ]")
SPACES = re.compile(r" {2,}")


@builtin
class NewlineNormalizer(DocumentModifier):
    """Keeps at most two newlines in a row, that is one empty line; the same for Windows line ends."""

    triggers = (rb"\n\n\n", rb"\r\n\r\n\r\n")

    def modify_document(self, text: str) -> str:
        return MANY_WINDOWS_NEWLINES.sub("\r\n\r\n", MANY_NEWLINES.sub("\n\n", text))


@builtin
class WhitespaceNormalizer(DocumentModifier):
    """Replaces each run of spaces, tabs and other blanks by one space, and removes it at ends of lines and of the text.

    Line ends of all kinds become newlines, and their number stays. With ``keep_newlines=False`` they count as blanks,
    and the text becomes one line. Not for code: indentation is lost.
    """

    def __init__(self, keep_newlines: bool = True) -> None:
        self.keep_newlines = keep_newlines
        newlines = (rb"\n ", rb" \n") if keep_newlines else (rb"\n",)
        self.triggers = (rb"  ", *newlines, rb"[\t\r\v\f\x1c-\x1f\x80-\xff]")

    def candidates(self, texts: Texts) -> Array:
        found = super().candidates(texts)
        some = texts.ends > texts.starts
        ends = np.concatenate([texts.starts[some], texts.ends[some] - 1])
        found[some] |= np.isin(texts.data[ends], [ord(" "), ord("\n")]).reshape(2, -1).any(axis=0)
        return found

    def modify_document(self, text: str) -> str:
        if not self.keep_newlines:
            return " ".join(text.split())
        text = OTHER_BLANKS.sub(" ", OTHER_NEWLINES.sub("\n", text))
        text = SPACES.sub(" ", text) if "  " in text else text
        return text.replace(" \n", "\n").replace("\n ", "\n").strip()
