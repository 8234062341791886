"""Stages and classes that change texts."""

from gristmill.stages.text.modifiers.boilerplate import BoilerPlateStringModifier
from gristmill.stages.text.modifiers.c4_lines import C4Lines
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.markdown import MarkdownRemover
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.modifiers.pii import PiiRedactor
from gristmill.stages.text.modifiers.quotations import QuotationNormalizer, QuotationRemover
from gristmill.stages.text.modifiers.removers import FastTextLabelModifier, LineRemover, Slicer, UrlRemover
from gristmill.stages.text.modifiers.unicode import UnicodeNormalizer, UnicodeReformatter
from gristmill.stages.text.modifiers.whitespace import NewlineNormalizer, WhitespaceNormalizer

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
