"""The topic of documents, by NVIDIA's classifiers."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.stages.registry import builtin
from gristmill.stages.text.classifiers.nvidia import FirstTokenClassifier


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class DomainClassifier(FirstTokenClassifier):
    """Labels English documents with one of 26 topics, by nvidia/domain-classifier.

    ``label_field`` gets the topic, ``score_field`` the probabilities of all. See `TextClassifier` for the other
    arguments.
    """

    repository = "nvidia/domain-classifier"

    label_field: str = "domain_pred"
    max_chars: int | None = 2000


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class MultilingualDomainClassifier(FirstTokenClassifier):
    """Labels documents in 52 languages with one of 26 topics, by nvidia/multilingual-domain-classifier.

    ``label_field`` gets the topic, ``score_field`` the probabilities of all. See `TextClassifier` for the other
    arguments.
    """

    repository = "nvidia/multilingual-domain-classifier"

    label_field: str = "multilingual_domain_pred"
    max_chars: int | None = 2000
