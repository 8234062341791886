"""Quotation marks."""

from __future__ import annotations

import re

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

SINGLE = re.compile("[\u2018-\u201b]")
DOUBLE = re.compile("[\u201c-\u201f]")


@builtin
class QuotationRemover(DocumentModifier):
    """Removes the straight double quotes around a whole text.

    A text of several lines keeps them if its first line ends with one: then only that line is quoted.
    """

    def candidates(self, texts: Texts) -> Array:
        long = texts.ends - texts.starts > 2
        quoted = long.copy()
        quoted[long] = texts.data[texts.starts[long]] == ord('"')
        quoted[long] &= texts.data[texts.ends[long] - 1] == ord('"')
        return quoted

    def modify_document(self, text: str) -> str:
        if len(text) <= 2 or text[0] != '"' or text[-1] != '"':
            return text
        first, newline, _ = text.partition("\n")
        return text if newline and first.endswith('"') else text[1:-1]


@builtin
class QuotationNormalizer(DocumentModifier):
    """Replaces curly and low quotation marks and apostrophes by straight ones."""

    triggers = (rb"\xe2\x80[\x98-\x9f]",)

    def modify_document(self, text: str) -> str:
        return DOUBLE.sub('"', SINGLE.sub("'", text))
