"""The path of `gristmill.workflows.text_semantic` in NeMo Curator, which is valid here too."""

from gristmill.lazy import names_of

__getattr__ = names_of("gristmill.workflows.text_semantic")
