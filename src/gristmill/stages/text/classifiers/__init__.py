"""Classifiers: models that give each document a label and scores, and filters by label."""

from gristmill.stages.text.classifiers.aegis import AegisClassifier, InstructionDataGuardClassifier
from gristmill.stages.text.classifiers.content_type import ContentTypeClassifier
from gristmill.stages.text.classifiers.domain import DomainClassifier, MultilingualDomainClassifier
from gristmill.stages.text.classifiers.fineweb_edu import (
    FineWebEduClassifier,
    FineWebMixtralEduClassifier,
    FineWebNemotronEduClassifier,
)
from gristmill.stages.text.classifiers.labels import LabelFilter
from gristmill.stages.text.classifiers.prompt_task_complexity import PromptTaskComplexityClassifier
from gristmill.stages.text.classifiers.quality import QualityClassifier
from gristmill.stages.text.classifiers.sequence import SequenceClassifier

__all__ = [
    "AegisClassifier",
    "ContentTypeClassifier",
    "DomainClassifier",
    "FineWebEduClassifier",
    "FineWebMixtralEduClassifier",
    "FineWebNemotronEduClassifier",
    "InstructionDataGuardClassifier",
    "LabelFilter",
    "MultilingualDomainClassifier",
    "PromptTaskComplexityClassifier",
    "QualityClassifier",
    "SequenceClassifier",
]
