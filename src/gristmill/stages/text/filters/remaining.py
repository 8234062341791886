"""The documents of a batch that are left while filters drop some of them, one filter after the other."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.lazy import Array, np
from gristmill.stages.text.filters.columns import numbers
from gristmill.stages.text.filters.document_filter import Contents, DocumentFilter
from gristmill.tasks import DocumentBatch, Scored
from gristmill.tasks.document import ID


class Remaining:
    """The rows of a batch that no filter has dropped, and what the filters score of them."""

    def __init__(self, batch: DocumentBatch, filters: Sequence[DocumentFilter], fields: Sequence[str]) -> None:
        self.rows: Array = np.arange(batch.num_items)
        self._contents: dict[str, Contents] = {}
        for one, field in zip(filters, fields, strict=True):
            key = one.contents_key(field)
            if key not in self._contents:
                self._contents[key] = one.contents_of(batch, field)
        self._verdicts: dict[int, tuple[str, float | None]] = {}
        self._bad: dict[int, str] = {}
        self._scored = scored_of(batch)

    def contents_of(self, one: DocumentFilter, field: str) -> Contents:
        """Return what a filter scores of the documents that are left. Those that cannot be read are bad, and leave."""
        bad = one.unreadable_in(self._contents[one.contents_key(field)])
        if bad:
            self._bad.update({int(self.rows[number]): reason for number, reason in bad.items()})
            mask = np.ones(len(self.rows), dtype=bool)
            mask[list(bad)] = False
            self._select(mask)
        return self._contents[one.contents_key(field)]

    def decide(self, one: DocumentFilter, scores: Array, mask: Array, invert: bool) -> None:
        """Note the scores of a filter for the documents that are left. Those for which ``mask`` is false leave."""
        self._scored.rules.append((self.rows, scores))
        if mask.all():
            return
        dropped, gone = self.rows[~mask], scores[~mask]
        self._scored.dropped_by[dropped] = len(self._scored.rules) - 1
        verdicts = zip(reasons_of(one, gone, invert), numbers(gone), strict=True)
        self._verdicts.update(zip(dropped.tolist(), verdicts, strict=True))
        self._select(mask)

    def kept_of(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the documents of the batch that are left, with an account of the others."""
        for key in self._contents:
            batch.cache.pop(key, None)
        dropped = sorted(self._verdicts)
        mask = np.ones(batch.num_items, dtype=bool)
        mask[dropped] = False
        verdicts = [self._verdicts[row] for row in dropped]
        kept = batch.keep(mask, [reason for reason, _ in verdicts], [score for _, score in verdicts])
        if self._bad:
            from gristmill.images.pictures import without_bad

            places = np.cumsum(mask) - 1
            kept = without_bad(kept, {int(places[row]): reason for row, reason in self._bad.items()})
            self._scored = self._scored.without(list(self._bad))
        kept.account.scored.append(self._scored)
        kept.cache.update(self._contents)
        return kept

    def _select(self, mask: Array) -> None:
        self.rows = self.rows[mask]
        self._contents = {key: those.select(mask) for key, those in self._contents.items()}


def scored_of(batch: DocumentBatch) -> Scored:
    """Return the record of the scores of a stage, without scores."""
    ids = batch.values_of(ID) if batch.has_ids else None
    return Scored(ids, dropped_by=np.full(batch.num_items, -1, dtype=np.int16))


def reasons_of(one: DocumentFilter, gone: Array, invert: bool) -> list[str]:
    """Return why documents with these scores are dropped, one reason for each."""
    reasons = f"not {one.name}" if invert else one.reasons(gone)
    return [reasons] * len(gone) if isinstance(reasons, str) else list(reasons)
