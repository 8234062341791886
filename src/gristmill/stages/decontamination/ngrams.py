"""Documents that share n-grams of words with a reference set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.decontamination.checks import check_share, check_whole
from gristmill.stages.decontamination.cutting import Remainder, in_characters, remove_spans
from gristmill.stages.decontamination.reference import ReferenceSource
from gristmill.stages.decontamination.stage import Decontamination, Matches
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import texts_among
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.modifiers.modify import put_column
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    from gristmill.kernels.overlap import NgramIndex, Overlaps
    from gristmill.kernels.texts import Texts


@builtin
@dataclass(eq=False, repr=False)
class NgramDecontamination(Decontamination):
    """Drops documents that have n-grams of words in common with an entry of a reference, cuts these out, or flags them.

        NgramDecontamination("benchmarks/*.jsonl", reference_field=["question", "choices"])

    The reference is ``reference_path``, a JSONL or Parquet file, a folder, a glob, a URL or a list of these, of which
    the texts are in ``reference_field`` (one field, or several, which may hold lists of texts), or it is a list of
    ``reference_texts``. A document overlaps an entry if it has at least ``min_matches`` different n-grams of it (all,
    of an entry that has fewer) and at least ``min_share`` of them. A text of the reference that is shorter than
    ``ngram`` words is looked for as a whole, unless it is shorter than ``min_words``. N-grams in more than
    ``max_frequency`` entries are common phrases and do not count.

    With ``normalize`` case and all but letters, marks and numbers do not matter. In scripts without spaces between
    words two characters of Chinese or Japanese count as a word, and four of Thai, Lao, Khmer, Burmese or Tibetan.

    ``action`` applies to documents that overlap: "drop" (the reason names the entry that overlaps most, the
    score is the number of its n-grams that were found, or the share of them if ``min_share`` is given), "cut" (what is
    common goes, with ``cut_window`` characters on each side and pieces left shorter than ``min_piece``; a document
    that is left in more than ``max_pieces`` pieces, or in none, is dropped) or "flag" (``flag_field`` names the entry,
    ``score_field`` has the score, null and 0 in documents that overlap none).
    """

    actions = ("drop", "cut", "flag")

    reference_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    reference_field: str | Sequence[str] = "text"
    ngram: int = 13
    text_field: str = "text"
    min_matches: int = 1
    min_share: float = 0.0
    action: Literal["drop", "cut", "flag"] = "drop"
    flag_field: str = "overlaps"
    score_field: str | None = None
    max_frequency: int | None = None
    min_words: int = 8
    normalize: bool = True
    cut_window: int = 200
    min_piece: int = 200
    max_pieces: int = 10
    reference_texts: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = 1 if self.max_frequency is None else self.max_frequency
        least_one = ("ngram", "min_matches", "min_words", "max_pieces")
        check_whole(self.name, 1, max_frequency=limit, **{name: getattr(self, name) for name in least_one})
        check_whole(self.name, 0, cut_window=self.cut_window, min_piece=self.min_piece)
        check_share(self.name, min_share=self.min_share)
        self.min_words = min(self.min_words, self.ngram)

    def load(self, files: tuple[File, ...]) -> tuple[Any, Sequence[str]]:
        from gristmill.kernels import overlap

        overlap.preload()
        return _load(self.reference, files, self.ngram, self.min_words, self.max_frequency, self.normalize)

    def wanted(self) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = np.flatnonzero(self.index.sizes)
        return found

    def find(self, texts: Texts) -> Matches:
        found = self._overlaps(texts)
        return Matches(found.entry, self._scores(found))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return self._cut(task) if self.action == "cut" else super().process(task)

    def _overlaps(self, texts: Texts) -> Overlaps:
        index: NgramIndex = self.index
        needs = index.needs(self.min_matches, self.min_share)
        return index.find(texts, needs, by_share=self.min_share > 0, with_spans=self.action == "cut")

    def _scores(self, found: Overlaps) -> np.ndarray[Any, Any]:
        if not self.min_share:
            return np.maximum(found.matches, 0)
        sizes = np.append(self.index.sizes, 1)  # the last is for documents that overlap no entry
        shares: np.ndarray[Any, Any] = np.maximum(found.matches, 0) / sizes[found.entry]
        return shares

    def _cut(self, task: DocumentBatch) -> DocumentBatch:
        """Cut the documents that overlap an entry, which are few, one by one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from gristmill.tasks.arrow import is_json, one_array

        texts = texts_among(task, self.text_field)
        found = self._overlaps(texts)
        rows = np.flatnonzero(found.entry >= 0)
        if not len(rows):
            return task
        scores = self._scores(found)
        changed, gone = np.zeros(len(texts), bool), np.zeros(len(texts), bool)
        left, reasons = [], []
        for row in rows.tolist():
            rest = self._rest(texts, found, row)
            if 0 < rest.pieces <= self.max_pieces:
                changed[row] = True
                left.append(rest.text)
                continue
            gone[row] = True
            much = f"{rest.pieces:,} pieces would be left" if rest.pieces else "nothing would be left"
            reasons.append(f"{self.reason(int(found.entry[row]))}: {much}")
        if left:
            column = one_array(task.data.column(self.text_field))
            if is_json(task.data.schema.field(self.text_field)):
                left = [fast_json.dumps(text).decode() for text in left]
            column = pc.replace_with_mask(column, pa.array(changed), pa.array(left, type=column.type))
            put_column(task, self.text_field, column)
            task.account.counters["documents cut"] += len(left)
        return task.keep(~gone, reasons, scores[gone].astype(float).tolist())

    def _rest(self, texts: Texts, found: Overlaps, row: int) -> Remainder:
        start, end = int(texts.starts[row]), int(texts.ends[row])
        data = texts.data[start:end].tobytes()
        spans = found.spans[:, found.span_edges[row] : found.span_edges[row + 1]] - start
        within = in_characters(data, [(a, b) for a, b in spans.T.tolist()])
        return remove_spans(data.decode("utf-8"), within, self.cut_window, self.min_piece)


@lru_cache(maxsize=8)
def _load(
    source: ReferenceSource,
    files: tuple[File, ...],
    ngram: int,
    min_words: int,
    max_frequency: int | None,
    normalize: bool,
) -> tuple[NgramIndex, Sequence[str]]:
    """Return the index of a reference, made once in a process and shared by its forks."""
    from gristmill.kernels.overlap import NgramIndex

    reference = source.read(files)
    index = NgramIndex.of(reference.texts, reference.entries, ngram, min_words, max_frequency, normalize)
    return index, reference.names
