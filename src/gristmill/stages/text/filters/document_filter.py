"""What a filter is: a score for each document, and which scores to keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.stages.component import Component

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


class DocumentFilter(Component):
    """Scores documents and says which to keep. Define one of each pair; the other follows.

        class Short(DocumentFilter):
            def score_document(self, text: str) -> int:
                return len(text)

            def keep_document(self, score: int) -> bool:
                return score >= 100

    ``score_batch`` and ``keep_batch`` do the same for many documents at once, with words, lines and n-grams that are
    computed once for all filters. Every text has a score, the empty one too. Results depend on the text alone.
    """

    name: str = ""
    """What it is called in ledgers: the class's name in lower case, without "Filter", unless it says otherwise."""

    needs: tuple[str, ...] = ()
    """The groups of features that it asks `Texts` for (see `kernels.features.KERNELS`): loaded before workers start."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Filter")).lower()

    def score_document(self, text: str) -> Any:
        """The score of one document."""
        from gristmill.kernels.texts import Texts

        self._one_of("score_document", "score_batch")
        return self.score_batch(Texts.of([text]))[0]

    def keep_document(self, score: Any) -> bool:
        """Whether a document with this score stays."""
        self._one_of("keep_document", "keep_batch")
        scores = np.asarray([score])
        if scores.ndim > 1:
            scores = np.empty(1, dtype=object)
            scores[0] = score
        return bool(self.keep_batch(scores)[0])

    def score_batch(self, texts: Texts) -> Array:
        """A score for each document."""
        self._one_of("score_document", "score_batch")
        scores = [self.score_document(text) for text in texts.strings()]
        if scores and all(isinstance(score, int | float | np.number | np.bool_) for score in scores):
            return np.asarray(scores)
        array = np.empty(len(scores), dtype=object)  # of no scores the type is not known
        for k, score in enumerate(scores):  # one by one: NumPy would take lists of numbers for a table
            array[k] = score
        return array

    def keep_batch(self, scores: Array) -> Array:
        """True for each score that is kept."""
        self._one_of("keep_document", "keep_batch")
        return np.fromiter((self._verdict(score) for score in scores), dtype=bool, count=len(scores))

    def reasons(self, scores: Array) -> str | Sequence[str]:
        """Why documents with these scores, none of which is kept, go: one reason for all, or one for each."""
        return self.name

    def rule(self) -> str:
        """The rule with its thresholds, in words for people; empty where that is not known."""
        return ""

    def setup(self) -> None:
        """In each worker, before the first document: open what cannot be shared."""

    def _verdict(self, score: Any) -> bool:
        kept = self.keep_document(score)
        if isinstance(kept, bool | np.bool_) or (isinstance(kept, int | np.integer) and kept in (0, 1)):
            return bool(kept)
        words = "nothing: is there a return missing?" if kept is None else f"{kept!r}, not True or False."
        raise TypeError(f"keep_document of filter {self.name!r} gave {words}")

    def check(self, scores: bool, keeps: bool) -> None:
        """Raise TypeError if a method that will be called is not there."""
        if scores:
            self._one_of("score_document", "score_batch")
        if keeps:
            self._one_of("keep_document", "keep_batch")

    def _one_of(self, one: str, other: str) -> None:
        kind = type(self)
        if all(getattr(kind, method) is getattr(DocumentFilter, method) for method in (one, other)):
            raise TypeError(f"{kind.__name__} defines neither {one} nor {other}: a filter needs one of them.")
