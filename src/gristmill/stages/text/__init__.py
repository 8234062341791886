"""Stages for text."""

from gristmill.stages.text.filters.fasttext import FastTextQualityFilter
from gristmill.stages.text.filters.language import FastTextLangId, LanguageIdentification
from gristmill.stages.text.modifiers import DocumentModifier, Modify, PiiRedactor
from gristmill.stages.text.tools import AddId, DocumentJoiner, DocumentSplitter

__all__ = [
    "AddId",
    "DocumentJoiner",
    "DocumentModifier",
    "DocumentSplitter",
    "FastTextLangId",
    "FastTextQualityFilter",
    "LanguageIdentification",
    "Modify",
    "PiiRedactor",
]
