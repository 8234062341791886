"""Reference texts that are like other texts: candidates by bands of sketches, compared by their shingles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.lazy import np

if TYPE_CHECKING:
    from gristmill.kernels.signatures import Sketcher
    from gristmill.kernels.texts import Texts

Array: TypeAlias = "np.ndarray[Any, Any]"
TEXTS_AT_ONCE = 1024
"""Texts whose sketches and candidates are in memory together."""
PAIRS_AT_ONCE = 1 << 16
"""Candidates that are compared at a time: their shingles are in memory."""
MOST_CANDIDATES = 4096
"""Candidates of a text at most, counted by band."""
COMPARED_FIRST, COMPARED = 64, 1024
"""Compared candidates of a text: more than the first only if none of those is similar enough."""


@dataclass(frozen=True)
class SimilarTexts:
    """Texts, and for each band its sorted values with their texts.

    Texts with one value in a band are sorted by the next band. The hash of the whole text is a band as well.
    """

    sketcher: Sketcher
    texts: Texts
    hashes: Array
    small: Array
    bands: Array
    following: Array
    order: Array

    @classmethod
    def of(cls, texts: Texts, sketcher: Sketcher) -> SimilarTexts:
        bands, following, small = _sketched(texts, sketcher)
        order = np.lexsort((following, bands), axis=1)
        known, after = (np.take_along_axis(values, order, axis=1) for values in (bands, following))
        return cls(sketcher, texts, bands[0].copy(), small, known, after, order)

    def find(self, texts: Texts, threshold: float, contained: bool = False) -> tuple[Array, Array, Array]:
        """Return which texts are like one of these by ``threshold`` or more, the most similar one, and the similarity.

        Similarity is Jaccard's index of the sets of shingles, or, if ``contained``, the share of this text's shingles
        that the other has. Of equally similar texts the first is returned. If a text has more candidates than are
        compared, the result is the most similar of the compared ones.
        """
        from gristmill.kernels.signatures import exact_hashes, first_equal
        from gristmill.kernels.texts import Texts

        same = first_equal(exact_hashes(texts))
        different = np.flatnonzero(same == np.arange(len(texts)))
        best, score = np.full(len(texts), -1, np.int64), np.zeros(len(texts))
        for start in range(0, len(different), TEXTS_AT_ONCE):
            part = different[start : start + TEXTS_AT_ONCE]
            some = Texts(texts.data, texts.starts[part], texts.ends[part])
            best[part], score[part] = self._best(some, threshold, contained)
        best, score = best[same], score[same]
        found = np.flatnonzero(best >= 0)
        return found, best[found], score[found]

    def _best(self, texts: Texts, threshold: float, contained: bool) -> tuple[Array, Array]:
        """Return the most similar text of each, -1 if none is similar enough, and the similarity."""
        best, score = np.full(len(texts), -1, np.int64), np.zeros(len(texts))
        left, right, rank = self._candidates(texts, contained)
        for turn in (rank < COMPARED_FIRST, rank >= COMPARED_FIRST):
            now = turn & (best[left] < 0)
            mine, theirs = left[now], right[now]
            scores = np.empty(len(mine))
            for start in range(0, len(mine), PAIRS_AT_ONCE):
                part = slice(start, start + PAIRS_AT_ONCE)
                scores[part] = self._compared(texts, mine[part], theirs[part], contained)
            # The best of each text comes last (of equal ones the first) and overwrites the others.
            order = np.lexsort((-theirs, scores, mine))
            order = order[scores[order] >= threshold]
            best[mine[order]], score[mine[order]] = theirs[order], scores[order]
        return best, score

    def _candidates(self, texts: Texts, contained: bool) -> tuple[Array, Array, Array]:
        """Return pairs that share a band, each once, and their rank in the text by estimated similarity."""
        bands, following, small = _sketched(texts, self.sketcher)
        first, last = self._buckets(bands, following)
        before = np.cumsum((last - first).sum(axis=0))
        parts = np.split(np.arange(len(texts)), np.flatnonzero(np.diff(before // PAIRS_AT_ONCE)) + 1)
        found = []
        for part in parts:
            left, right = self._pairs(first[:, part], last[:, part])
            left = part[left]
            rank = np.zeros(len(left), np.int64)
            crowded = np.flatnonzero(np.bincount(left, minlength=len(texts))[left] > COMPARED_FIRST)
            mine, theirs = left[crowded], right[crowded]
            likeness = self._likeness(texts, small, mine, theirs, contained)
            likeness[bands[0][mine] == self.hashes[theirs]] = np.inf
            order = np.lexsort((theirs, -likeness, mine))
            rank[crowded[order]] = np.arange(len(mine)) - np.searchsorted(mine, mine)
            compared = rank < COMPARED
            found.append((left[compared], right[compared], rank[compared]))
        left, right, rank = (np.concatenate(values) for values in zip(*found, strict=True))
        return left, right, rank

    def _buckets(self, bands: Array, following: Array) -> tuple[Array, Array]:
        """Return for each band and text where its candidates begin and end in the order of the band.

        If a text has too many, each of its bands has the same share, of those that have the next band in common first.
        """
        first, last = np.empty((2, *bands.shape), np.int64)
        for i, (known, band) in enumerate(zip(self.bands, bands, strict=True)):
            first[i], last[i] = np.searchsorted(known, band, "left"), np.searchsorted(known, band, "right")
        sizes = last - first
        most = np.maximum(MOST_CANDIDATES // np.maximum((sizes > 0).sum(axis=0), 1), 1)
        most[sizes.sum(axis=0) <= MOST_CANDIDATES] = MOST_CANDIDATES
        for band, text in zip(*np.nonzero(sizes > most), strict=True):
            start, end = first[band, text], last[band, text]
            near = start + np.searchsorted(self.following[band, start:end], following[band, text])
            first[band, text] = min(near, end - most[text])
        return first, np.minimum(last, first + most)

    def _pairs(self, first: Array, last: Array) -> tuple[Array, Array]:
        """Return pairs of a text and a candidate, in order, each once."""
        count = max(len(self.texts), 1)
        times = (last - first).ravel()
        # 0, 1, ... for each bucket, as often as it has candidates
        steps = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        band, text = np.divmod(np.repeat(np.arange(len(times)), times), max(first.shape[1], 1))
        pairs = np.unique(text * count + self.order[band, first[band, text] + steps])
        return pairs // count, pairs % count

    def _likeness(self, texts: Texts, small: Array, left: Array, right: Array, contained: bool) -> Array:
        """Estimate the similarity of pairs by their sketches."""
        from gristmill.kernels.signatures import estimated_jaccard

        similarity = estimated_jaccard(small[left], self.small[right])
        if not contained:
            return similarity
        mine, theirs = (np.maximum(some.ends - some.starts, 1) for some in (texts, self.texts))
        shares: Array = similarity * (1 + mine[left] / theirs[right]) / (1 + similarity)
        return shares

    def _compared(self, texts: Texts, left: Array, right: Array, contained: bool) -> Array:
        from gristmill.kernels.signatures import jaccards, shingle_sets

        sketcher = self.sketcher
        mine, left = np.unique(left, return_inverse=True)
        theirs, right = np.unique(right, return_inverse=True)
        values, edges = shingle_sets(texts.select(mine), sketcher.ngrams, sketcher.unit)
        more, more_edges = shingle_sets(self.texts.select(theirs), sketcher.ngrams, sketcher.unit)
        edges = np.concatenate([edges, edges[-1] + more_edges[1:]])
        right = right + len(mine)
        scores = jaccards(np.concatenate([values, more]), edges, left, right)
        if not contained:
            return scores
        sizes = np.diff(edges)
        # j = common / (a + b - common)
        common = np.rint(scores * (sizes[left] + sizes[right]) / (1 + scores))
        shares: Array = common / sizes[right]
        return shares


def _sketched(texts: Texts, sketcher: Sketcher) -> tuple[Array, Array, Array]:
    """Return the bands of texts, hashes of whole texts first; the next band of each; and `Sketch.small`."""
    from gristmill.kernels.signatures import exact_hashes

    sketch = sketcher.sketch(texts)
    bands = np.vstack([exact_hashes(texts)[:, 0], sketch.bands])
    return bands, np.roll(bands, -1, axis=0), sketch.small
