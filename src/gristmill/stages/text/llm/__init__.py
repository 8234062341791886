"""Language models: generate, judge, classify, rewrite and translate documents."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.text.llm.classifier import *  # noqa: F403
    from gristmill.stages.text.llm.judge import *  # noqa: F403
    from gristmill.stages.text.llm.models import *  # noqa: F403
    from gristmill.stages.text.llm.questions import *  # noqa: F403
    from gristmill.stages.text.llm.rewriter import *  # noqa: F403
    from gristmill.stages.text.llm.stage import *  # noqa: F403
    from gristmill.stages.text.llm.translate import *  # noqa: F403

_FILES = {
    "Endpoint": "models",
    "LLMClassifier": "classifier",
    "LLMJudge": "judge",
    "LLMRewriter": "rewriter",
    "LLMStage": "stage",
    "QAGenerator": "questions",
    "TransformersModel": "models",
    "Translate": "translate",
    "VLLMModel": "models",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines ask a language model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
