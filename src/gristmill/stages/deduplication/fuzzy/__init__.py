"""Documents with nearly the same text."""

from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication

__all__ = ["FuzzyDeduplication"]
