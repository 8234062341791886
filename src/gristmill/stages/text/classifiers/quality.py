"""The quality of documents, by NVIDIA's classifier."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.stages.registry import builtin
from gristmill.stages.text.classifiers.nvidia import FirstTokenClassifier


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class QualityClassifier(FirstTokenClassifier):
    """Labels English documents as High, Medium or Low, by nvidia/quality-classifier-deberta.

        QualityClassifier(model_inference_batch_size=256, max_chars=6000, filter_by=["High", "Medium"])

    ``label_field`` gets the label. ``score_field`` gets the probabilities of all labels. See `TextClassifier` for the
    other arguments.
    """

    repository = "nvidia/quality-classifier-deberta"
    tokens = 1024

    label_field: str = "quality_pred"
    max_chars: int | None = 6000
