"""The kind of speech of documents, by NVIDIA's classifier."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.stages.registry import builtin
from gristmill.stages.text.classifiers.nvidia import FirstTokenClassifier


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ContentTypeClassifier(FirstTokenClassifier):
    """Labels English documents with one of 11 types of content, by nvidia/content-type-classifier-deberta.

    Blogs, News, Reviews and Explanatory Articles are among them. ``label_field`` gets the type, ``score_field`` the
    probabilities of all. See `TextClassifier` for the other arguments.
    """

    repository = "nvidia/content-type-classifier-deberta"
    tokens = 1024

    label_field: str = "content_pred"
    max_chars: int | None = 6000
