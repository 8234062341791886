"""Documents, lines and paragraphs with the same text."""

from gristmill.stages.deduplication.exact.pieces import LineDeduplication, ParagraphDeduplication
from gristmill.stages.deduplication.exact.stage import ExactDeduplication

__all__ = ["ExactDeduplication", "LineDeduplication", "ParagraphDeduplication"]
