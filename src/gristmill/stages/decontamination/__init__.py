"""Stages that keep a reference set, such as the questions of a benchmark, out of documents."""

from gristmill.stages.decontamination.fuzzy import FuzzyDecontamination
from gristmill.stages.decontamination.ngrams import NgramDecontamination

__all__ = ["FuzzyDecontamination", "NgramDecontamination"]
