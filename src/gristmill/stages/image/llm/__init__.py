"""Language models that see images."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.llm.caption import *  # noqa: F403

_FILES = {"LLMCaption": "caption"}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines ask a language model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
