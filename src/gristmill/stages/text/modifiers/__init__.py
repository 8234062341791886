"""Stages and classes that change texts."""

from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.modifiers.normalizers import (
    NewlineNormalizer,
    QuotationNormalizer,
    QuotationRemover,
    UnicodeNormalizer,
    UnicodeReformatter,
    WhitespaceNormalizer,
)
from gristmill.stages.text.modifiers.pii import PiiRedactor
from gristmill.stages.text.modifiers.removers import (
    BoilerPlateStringModifier,
    C4Lines,
    FastTextLabelModifier,
    LineRemover,
    MarkdownRemover,
    Slicer,
    UrlRemover,
)

__all__ = [
    "BoilerPlateStringModifier",
    "C4Lines",
    "DocumentModifier",
    "FastTextLabelModifier",
    "LineRemover",
    "MarkdownRemover",
    "Modify",
    "NewlineNormalizer",
    "PiiRedactor",
    "QuotationNormalizer",
    "QuotationRemover",
    "Slicer",
    "UnicodeNormalizer",
    "UnicodeReformatter",
    "UrlRemover",
    "WhitespaceNormalizer",
]
