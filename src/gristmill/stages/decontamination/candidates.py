"""Texts of a reference that are like other texts: candidates by the bands of sketches, checked by their shingles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.lazy import np

if TYPE_CHECKING:
    from gristmill.kernels.signatures import Sketcher
    from gristmill.kernels.texts import Texts

Array: TypeAlias = "np.ndarray[Any, Any]"
PAIRS_AT_ONCE = 1 << 16
"""Candidates that are compared together: their shingles are in memory."""


@dataclass(frozen=True)
class SimilarTexts:
    """Texts, and for each band their values in it, sorted, with the texts that have them."""

    sketcher: Sketcher
    texts: Texts
    bands: Array
    order: Array

    @classmethod
    def of(cls, texts: Texts, sketcher: Sketcher) -> SimilarTexts:
        bands = sketcher.sketch(texts).bands
        order = np.argsort(bands, axis=1, kind="stable")
        return cls(sketcher, texts, np.take_along_axis(bands, order, axis=1), order)

    def find(self, texts: Texts, threshold: float, contained: bool = False) -> tuple[Array, Array, Array]:
        """Pairs of a text and one of these that are as similar as ``threshold``, in order, and how similar they are.

        Similar is the Jaccard similarity of the sets of shingles, or, if ``contained``, the share of this text's
        shingles that the other has.
        """
        left, right = self._candidates(texts)
        scores = np.empty(len(left))
        for start in range(0, len(left), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            scores[part] = self._compared(texts, left[part], right[part], contained)
        similar = scores >= threshold
        return left[similar], right[similar], scores[similar]

    def _candidates(self, texts: Texts) -> tuple[Array, Array]:
        """Pairs that share a band, each once."""
        count = len(self.texts)
        found = [np.zeros(0, np.int64)]
        for band, known, order in zip(self.sketcher.sketch(texts).bands, self.bands, self.order, strict=True):
            first, last = np.searchsorted(known, band, "left"), np.searchsorted(known, band, "right")
            hits = np.flatnonzero(last > first)
            times = (last - first)[hits]
            # 0, 1, ... for each hit, as often as it has partners
            steps = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
            found.append(np.repeat(hits, times) * count + order[np.repeat(first[hits], times) + steps])
        pairs = np.unique(np.concatenate(found))
        return pairs // max(count, 1), pairs % max(count, 1)

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
