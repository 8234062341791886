"""Documents that are like an entry of a reference set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from gristmill.lazy import np
from gristmill.stages.decontamination.candidates import SimilarTexts
from gristmill.stages.decontamination.checks import check_share, check_whole
from gristmill.stages.decontamination.reference import ReferenceSource
from gristmill.stages.decontamination.stage import Decontamination, Matches
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.listing import File

if TYPE_CHECKING:
    from gristmill.kernels.signatures import Sketcher
    from gristmill.kernels.texts import Texts

PIECES = ("document", "paragraph", "line")
MEASURES = ("jaccard", "containment")


@builtin
@dataclass(eq=False, repr=False)
class FuzzyDecontamination(Decontamination):
    """Drops documents that are nearly the same as an entry of a reference, or flags them.

        FuzzyDecontamination("benchmarks/*.jsonl", reference_field="question", pieces="paragraph")

    The reference is given as for `NgramDecontamination`. Its texts of less than ``min_chars`` characters are skipped.
    Candidates are found by MinHash, ``num_bands`` bands of ``minhashes_per_band`` over shingles of ``char_ngrams``
    characters. A candidate counts if the Jaccard similarity of both sets of shingles, which is then computed exactly,
    is at least ``jaccard_threshold``; with ``measure="containment"``, the share of the entry's shingles that the
    document has. Case, white space, invisible characters and composed or decomposed accents do not matter unless
    ``normalize`` is False. Whole documents are compared, or each of their paragraphs or lines (``pieces``). One
    similar piece is enough.

    With ``action`` "drop" the reason names the most similar entry, and the score is the similarity; "flag" writes them
    to ``flag_field`` and, if given, ``score_field``: null and 0 in documents that are like no entry.
    """

    revision = 2

    reference_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    reference_field: str | Sequence[str] = "text"
    text_field: str = "text"
    char_ngrams: int = 24
    num_bands: int = 20
    minhashes_per_band: int = 13
    jaccard_threshold: float = 0.8
    measure: Literal["jaccard", "containment"] = "jaccard"
    pieces: Literal["document", "paragraph", "line"] = "document"
    action: Literal["drop", "flag"] = "drop"
    flag_field: str = "overlaps"
    score_field: str | None = None
    min_chars: int = 40
    seed: int = 42
    normalize: bool = True
    reference_texts: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        least_one = ("char_ngrams", "num_bands", "minhashes_per_band", "min_chars")
        check_whole(self.name, 1, **{name: getattr(self, name) for name in least_one})
        check_share(self.name, jaccard_threshold=self.jaccard_threshold)
        for name, value, known in (("measure", self.measure, MEASURES), ("pieces", self.pieces, PIECES)):
            if value not in known:
                raise ValueError(f"{self.name}: {name} is one of {', '.join(map(repr, known))}, not {value!r}.")

    def load(self, files: tuple[File, ...]) -> tuple[Any, Sequence[str]]:
        from gristmill.kernels import folding, signatures

        signatures.preload(["fast", "sets"])
        folding.preload()
        sketcher = signatures.Sketcher(
            ngrams=self.char_ngrams,
            num_bands=self.num_bands,
            minhashes_per_band=self.minhashes_per_band,
            seed=self.seed,
        )
        return _load(self.reference, files, sketcher, self.min_chars, self.normalize)

    def wanted(self) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self.index.wanted
        return found

    def find(self, texts: Texts) -> Matches:
        from gristmill.kernels.folding import folded
        from gristmill.kernels.signatures import piece_hashes
        from gristmill.kernels.texts import Texts

        known: _Known = self.index
        document, parts = np.arange(len(texts)), texts
        if self.pieces != "document":
            _, document, starts, ends, _ = piece_hashes(texts, self.pieces)
            parts = Texts(texts.data, starts, ends)
        if self.normalize:
            parts = folded(parts)
        entry, score = np.full(len(texts), -1, np.int64), np.zeros(len(texts))
        left, right, scores = known.similar.find(parts, self.jaccard_threshold, self.measure == "containment")
        owners = known.entries[right]
        # The best of each document comes last (of equal ones the first) and overwrites the others.
        best = np.lexsort((-owners, scores, document[left]))
        entry[document[left][best]], score[document[left][best]] = owners[best], scores[best]
        return Matches(entry, score)


@dataclass(frozen=True)
class _Known:
    """The reference texts to look for, and their entries."""

    similar: SimilarTexts
    entries: np.ndarray[Any, Any]
    wanted: np.ndarray[Any, Any]
    """The entries to look for, including those equal to others."""


@lru_cache(maxsize=8)
def _load(
    source: ReferenceSource, files: tuple[File, ...], sketcher: Sketcher, min_chars: int, normalize: bool
) -> tuple[_Known, Sequence[str]]:
    """Return the index of a reference, made once in a process and shared by its forks."""
    from gristmill.kernels.folding import folded
    from gristmill.kernels.signatures import exact_hashes, first_equal

    reference = source.read(files)
    texts = folded(reference.texts) if normalize else reference.texts
    # A repeated text would make as many candidates each time that it is found.
    first = first_equal(exact_hashes(texts)) == np.arange(len(texts))
    long = texts.length.count >= min_chars
    similar = SimilarTexts.of(texts.select(first & long), sketcher)
    known = _Known(similar, reference.entries[first & long], np.unique(reference.entries[long]))
    return known, reference.names
