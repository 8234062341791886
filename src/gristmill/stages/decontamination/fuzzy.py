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
from gristmill.stages.registry import register
from gristmill.stages.text.io.listing import File

if TYPE_CHECKING:
    from gristmill.kernels.signatures import Sketcher
    from gristmill.kernels.texts import Texts

PIECES = ("document", "paragraph", "line")
MEASURES = ("jaccard", "containment")


@register
class FuzzyDecontamination(Decontamination):
    """Drops documents that are nearly the same as an entry of a reference, or flags them.

        FuzzyDecontamination("benchmarks/*.jsonl", reference_field="question", pieces="paragraph")

    The reference is given as for `NgramDecontamination`; its texts of less than ``min_chars`` characters are not looked
    for. Candidates are found by MinHash, ``num_bands`` bands of ``minhashes_per_band`` over shingles of ``char_ngrams``
    characters. A candidate counts if the Jaccard similarity of both sets of shingles, which is then computed exactly,
    is at least ``jaccard_threshold``; with ``measure="containment"``, the share of the entry's shingles that the
    document has. Case, white space, invisible characters and composed or decomposed accents do not matter unless
    ``normalize`` is False. Whole documents are compared, or each of their paragraphs or lines
    (``pieces``), one of which is enough.

    ``action`` "drop" gives the entry that is most similar as the reason, and how similar it is as the score; "flag"
    puts them into ``flag_field`` and, if it is given, ``score_field``: null and 0 in documents that are like none.
    """

    revision = 2

    def __init__(
        self,
        reference_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        reference_field: str | Sequence[str] = "text",
        text_field: str = "text",
        char_ngrams: int = 24,
        num_bands: int = 20,
        minhashes_per_band: int = 13,
        jaccard_threshold: float = 0.8,
        measure: Literal["jaccard", "containment"] = "jaccard",
        pieces: Literal["document", "paragraph", "line"] = "document",
        action: Literal["drop", "flag"] = "drop",
        flag_field: str = "overlaps",
        score_field: str | None = None,
        min_chars: int = 40,
        seed: int = 42,
        normalize: bool = True,
        reference_texts: Sequence[str] | None = None,
        read_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        source = ReferenceSource.of(self.name, reference_path, reference_texts, reference_field, read_kwargs)
        super().__init__(source, text_field, action, flag_field, score_field)
        check_whole(self.name, 1, char_ngrams=char_ngrams, num_bands=num_bands, minhashes_per_band=minhashes_per_band)
        check_whole(self.name, 1, min_chars=min_chars)
        check_share(self.name, jaccard_threshold=jaccard_threshold)
        for name, value, known in (("measure", measure, MEASURES), ("pieces", pieces, PIECES)):
            if value not in known:
                raise ValueError(f"{self.name}: {name} is one of {', '.join(map(repr, known))}, not {value!r}.")
        self.char_ngrams = char_ngrams
        self.num_bands = num_bands
        self.minhashes_per_band = minhashes_per_band
        self.jaccard_threshold = jaccard_threshold
        self.measure = measure
        self.pieces = pieces
        self.min_chars = min_chars
        self.seed = seed
        self.normalize = normalize

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
        # The best of each document comes last, the first entry of equal ones, and is what stays.
        best = np.lexsort((-owners, scores, document[left]))
        entry[document[left][best]], score[document[left][best]] = owners[best], scores[best]
        return Matches(entry, score)


@dataclass(frozen=True)
class _Known:
    """The texts of a reference that are looked for, and the entries that they belong to."""

    similar: SimilarTexts
    entries: np.ndarray[Any, Any]
    wanted: np.ndarray[Any, Any]
    """The entries that are looked for, those too that are equal to others."""


@lru_cache(maxsize=8)
def _load(
    source: ReferenceSource, files: tuple[File, ...], sketcher: Sketcher, min_chars: int, normalize: bool
) -> tuple[_Known, Sequence[str]]:
    """What is looked for, made once in a process; processes that are forked from it share it."""
    from gristmill.kernels.folding import folded
    from gristmill.kernels.signatures import exact_hashes, first_equal

    reference = source.read(files)
    texts = folded(reference.texts) if normalize else reference.texts
    # A text that is there often would make as many candidates, each time that it is found.
    first = first_equal(exact_hashes(texts)) == np.arange(len(texts))
    long = texts.length.count >= min_chars
    similar = SimilarTexts.of(texts.select(first & long), sketcher)
    known = _Known(similar, reference.entries[first & long], np.unique(reference.entries[long]))
    return known, reference.names
