"""Classifiers: models that give each document a label and scores, and filters by label."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.text.classifiers.aegis import *  # noqa: F403
    from gristmill.stages.text.classifiers.content_type import *  # noqa: F403
    from gristmill.stages.text.classifiers.domain import *  # noqa: F403
    from gristmill.stages.text.classifiers.fineweb_edu import *  # noqa: F403
    from gristmill.stages.text.classifiers.labels import *  # noqa: F403
    from gristmill.stages.text.classifiers.prompt_task_complexity import *  # noqa: F403
    from gristmill.stages.text.classifiers.quality import *  # noqa: F403
    from gristmill.stages.text.classifiers.sequence import *  # noqa: F403

_FILES = {
    "AegisClassifier": "aegis",
    "ContentTypeClassifier": "content_type",
    "DomainClassifier": "domain",
    "FineWebEduClassifier": "fineweb_edu",
    "FineWebMixtralEduClassifier": "fineweb_edu",
    "FineWebNemotronEduClassifier": "fineweb_edu",
    "InstructionDataGuardClassifier": "aegis",
    "LabelFilter": "labels",
    "MultilingualDomainClassifier": "domain",
    "PromptTaskComplexityClassifier": "prompt_task_complexity",
    "QualityClassifier": "quality",
    "SequenceClassifier": "sequence",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
