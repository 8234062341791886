"""Paths of NeMo Curator for the deduplication of texts."""

from gristmill.lazy import names_of

__getattr__ = names_of("gristmill.workflows.text_semantic")
