"""Classifiers: models that give each document a label and scores, and filters by label."""

from gristmill.stages.text.classifiers.labels import LabelFilter
from gristmill.stages.text.classifiers.sequence import SequenceClassifier

__all__ = ["LabelFilter", "SequenceClassifier"]
