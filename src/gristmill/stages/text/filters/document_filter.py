"""The base classes of filters: a score for each document, and which scores to keep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.contracts import Component
from gristmill.stages.text.filters.columns import texts_of

if TYPE_CHECKING:
    from gristmill.tasks import DocumentBatch


class Contents(Protocol):
    """Documents as a filter scores them, in their order: their texts, or their pictures."""

    def __len__(self) -> int: ...

    def select(self, mask: Array) -> Self: ...


class DocumentFilter(Component):
    """Scores documents and decides which to keep. Define one method of each pair; the other follows.

        class Short(DocumentFilter):
            def score_document(self, text: str) -> int:
                return len(text)

            def keep_document(self, score: int) -> bool:
                return score >= 100

    ``score_batch`` and ``keep_batch`` do the same for many documents at once. Words, lines and n-grams are then
    computed once for all filters. Every text has a score, the empty one too. Results depend on the text alone.
    """

    name: str = ""
    """The name in ledgers. Default: the class's name in lower case with underscores, without "Filter"."""

    default_field: str = "text"
    """The column that it reads if its stage names none."""

    other_fields: tuple[str, ...] = ()
    """Columns that it reads beside that one, if they exist."""

    reads_texts: bool = True
    """Whether the column holds texts. Other filters say themselves what they read: see `contents_of`."""

    needs: tuple[str, ...] = ()
    """The groups of features that it uses (see `kernels.features.KERNELS`). They are loaded before workers start."""

    thresholds: Mapping[str, str] = {}
    """The arguments that decide which scores are kept and change no score, each with the attribute that holds its
    value: "least" for the smallest score that is kept, "most" for the largest. `gristmill what-if` can change them."""

    rule_text: str = ""
    """The rule in words for people. ``{0.most}`` stands for the filter's attribute ``most``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Filter")).lower()

    def score_document(self, text: str) -> Any:
        """Return the score of one document."""
        self._check_scores()
        return self.score_batch(Texts.of([text]))[0]

    def keep_document(self, score: Any) -> bool:
        """Return whether a document with this score stays."""
        self._check_keeps()
        scores = np.asarray([score])
        if scores.ndim > 1:
            scores = np.empty(1, dtype=object)
            scores[0] = score
        return bool(self.keep_batch(scores)[0])

    def score_batch(self, texts: Texts) -> Array:
        """Return a score for each document."""
        self._check_scores()
        scores = [self.score_document(text) for text in texts.strings()]
        if scores and all(isinstance(score, int | float | np.number | np.bool_) for score in scores):
            return np.asarray(scores)
        array = np.empty(len(scores), dtype=object)  # without scores the type is unknown
        for k, score in enumerate(scores):  # one by one: NumPy would make a table of lists of numbers
            array[k] = score
        return array

    def keep_batch(self, scores: Array) -> Array:
        """Return True for each score that is kept."""
        self._check_keeps()
        return np.fromiter((self._verdict(score) for score in scores), dtype=bool, count=len(scores))

    def reasons(self, scores: Array) -> str | Sequence[str]:
        """Return why documents with these scores are dropped: one reason, or one for each. None of them is kept."""
        return self.name

    def rule(self) -> str:
        """Return the rule with its thresholds in words for people; empty if it is unknown."""
        return self.rule_text.format(self)

    def threshold_values(self) -> dict[str, tuple[str, Any]]:
        """Return the value of each of ``thresholds`` by its argument, with the attribute that holds it."""
        return {argument: (attribute, getattr(self, attribute)) for argument, attribute in self.thresholds.items()}

    def without_unreadable(self, batch: DocumentBatch, field: str) -> DocumentBatch:
        """Return the batch without the documents that cannot be scored, which are reported as bad records."""
        return batch

    def contents_of(self, batch: DocumentBatch, field: str) -> Contents:
        """Return what it scores of a batch that `without_unreadable` returned: the texts of a column."""
        return texts_of(batch, field)

    def contents_key(self, field: str) -> str:
        """Return the name of what it scores in the cache of a batch. Filters with one name are given the same."""
        return field

    def unreadable_in(self, contents: Any) -> Mapping[int, str]:
        """Return the numbers of documents that turn out to be unreadable just before they are scored, with reasons."""
        return {}

    def score_contents(self, contents: Any) -> Array:
        """Return a score for each document of what `contents_of` returned."""
        return self.score_batch(contents)

    def setup(self) -> None:
        """Open in each worker, before the first document, what cannot be shared."""

    def check(self, scores: bool, keeps: bool) -> None:
        """Raise TypeError if a method that will be called is not defined."""
        if scores:
            self._check_scores()
        if keeps:
            self._check_keeps()

    def _verdict(self, score: Any) -> bool:
        kept = self.keep_document(score)
        if isinstance(kept, bool | np.bool_) or (isinstance(kept, int | np.integer) and kept in (0, 1)):
            return bool(kept)
        words = "nothing: is there a return missing?" if kept is None else f"{kept!r}, not True or False."
        raise TypeError(f"keep_document of filter {self.name!r} gave {words}")

    def _check_scores(self) -> None:
        kind, base = type(self), DocumentFilter
        if kind.score_document is base.score_document and kind.score_batch is base.score_batch:
            raise _neither(kind, "score_document", "score_batch")

    def _check_keeps(self) -> None:
        kind, base = type(self), DocumentFilter
        if kind.keep_document is base.keep_document and kind.keep_batch is base.keep_batch:
            raise _neither(kind, "keep_document", "keep_batch")


def _neither(kind: type, one: str, other: str) -> TypeError:
    return TypeError(f"{kind.__name__} defines neither {one} nor {other}: a filter needs one of them.")


class AtMost(DocumentFilter):
    """Keeps scores up to ``most``; if ``exclusive``, scores below it."""

    most: float
    exclusive: bool = False

    @property
    def percent(self) -> str:
        return percent(self.most)

    def keep_batch(self, scores: Array) -> Array:
        return scores < self.most if self.exclusive else scores <= self.most


class AtLeast(DocumentFilter):
    """Keeps scores from ``least`` on; if ``exclusive``, scores above it."""

    least: float
    exclusive: bool = False

    @property
    def percent(self) -> str:
        return percent(self.least)

    def keep_batch(self, scores: Array) -> Array:
        return scores > self.least if self.exclusive else scores >= self.least


class InRange(DocumentFilter):
    """Keeps scores from ``least`` to ``most``. The reason is ``below`` or ``above``."""

    least: float
    most: float
    below: str
    above: str

    def keep_batch(self, scores: Array) -> Array:
        return (scores >= self.least) & (scores <= self.most)

    def reasons(self, scores: Array) -> Sequence[str]:
        # Not "score < least": NaN counts as too little.
        return [self.above if score > self.most else self.below for score in scores]


def ratio(part: Array, whole: Array, empty: float) -> Array:
    """Return ``part / whole``, and ``empty`` where ``whole`` is 0."""
    shares: Array = np.where(whole > 0, part / np.maximum(whole, 1), empty)
    return shares


def percent(share: float) -> str:
    return f"{share * 100:g}%"
