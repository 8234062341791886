"""Code that the domain, quality and content-type classifiers of NVIDIA share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gristmill.models.heads import HeadSpec
from gristmill.models.nvidia import FirstToken
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.classifiers.base import TextClassifier
from gristmill.stages.text.classifiers.sequence import ClassifierModelStage
from gristmill.stages.text.models.model import ModelStage


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class FirstTokenModelStage(ClassifierModelStage):
    """The model of such a classifier."""

    def head(self) -> HeadSpec:
        return FirstToken()


@dataclass(eq=False, repr=False, kw_only=True)
class FirstTokenClassifier(TextClassifier):
    """A DeBERTa model with one dense layer on the first token."""

    repository: ClassVar[str]
    tokens: ClassVar[int] = 512

    model: str | None = None
    label_field: str = "preds"
    score_field: str | None = None

    @property
    def model_name(self) -> str:
        return self.repository if self.model is None else str(self.model)

    @property
    def longest(self) -> int | None:
        return self.tokens

    @property
    def label_column(self) -> str:
        return self.label_field

    def model_stage(self, **common: Any) -> ModelStage:
        return FirstTokenModelStage(**common, label_field=self.label_field, score_field=self.score_field)
