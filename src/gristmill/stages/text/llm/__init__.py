"""Language models: generate, judge, classify, rewrite and translate documents."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.text.llm.models import Endpoint as Endpoint
    from gristmill.stages.text.llm.stage import *  # noqa: F403

_FILES = {
    "Endpoint": "models",
    "LLMStage": "stage",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines ask a language model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
