"""Documents with the same text."""

from gristmill.stages.deduplication.exact.stage import ExactDeduplication

__all__ = ["ExactDeduplication"]
