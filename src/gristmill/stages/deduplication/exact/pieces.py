"""Lines and paragraphs that were there before: removed from the texts of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierStage, Between, Forecast, Looked
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.remove import REMOVED, Removal
from gristmill.stages.registry import register
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING_LEFT = "nothing left but what other documents say"


class PieceDeduplication(BarrierStage):
    """Keeps the first of equal pieces of text among all documents, in the order of the source."""

    stays = (REMOVED,)
    unit: ClassVar[str] = ""

    def __init__(self, text_field: str = "text", min_length: int = 1, memory_limit: int | str | None = None) -> None:
        if type(min_length) is not int or min_length < 1:
            raise ValueError(f"min_length must be a whole number above 0, not {min_length!r}.")
        self.text_field = text_field
        self.min_length = min_length
        self.memory_limit = None if memory_limit is None else parse_size(memory_limit)
        self.key_columns = [text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def preload(self) -> None:
        from gristmill.kernels import signatures

        signatures.preload(["pieces"])

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import IDENT, SIZE
        from gristmill.tasks.arrow import one_array
        from gristmill.tasks.document import ID

        hashes, document, begin, end = pieces_of(batch, self.text_field, self.unit)
        long = np.flatnonzero(end - begin >= self.min_length)
        ids = one_array(batch.data.column(ID))
        idents = pa.DictionaryArray.from_arrays(pa.array(document[long].astype(np.int32)), ids)
        return pa.table(
            {
                IDENT: idents,
                SIZE: pa.array((end - begin)[long]),
                "piece": pa.array(long),
                "h0": hashes[long, 0].copy(),
                "h1": hashes[long, 1].copy(),
            }
        )

    def decide(self, between: Between) -> None:
        from gristmill.stages.deduplication import decisions, link, match
        from gristmill.stages.deduplication.parts import Parts

        parts = Parts.found(between.folder)
        if not parts.documents:
            decisions.write_counts(between, parts, of_documents=False)
            return
        match.write_array(between.folder, link.STAYS, decisions.equal_keys(between, parts))
        removed = decisions.write_piece_records(between, parts)
        between.notes.append(f"{self.name}: {removed:,} of {parts.documents:,} {self.unit}s were there before")

    def behind(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        return RemovePieces(self.name, self.text_field, self.unit, folder, records)

    def forecast(self, looked: Looked, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        pieces = Looked(looked.keys, looked.text_bytes, looked.documents * looked.seconds_each / max(1, looked.keys))
        found = Cost(pieces, memory, workers, stored, key_bytes=32).forecast()
        return Forecast(looked.documents, looked.text_bytes, found.memory_bytes, found.disk_bytes, found.seconds)


@register
class LineDeduplication(PieceDeduplication):
    """Removes lines from texts that were there before, in the same document or in one before it.

    Lines are compared without the white space around them; blank ones are left alone, and so are those of fewer than
    ``min_length`` bytes. A document of which no line is left is dropped. What was removed is in ``duplicates/``.
    """

    unit = "line"


@register
class ParagraphDeduplication(PieceDeduplication):
    """Removes paragraphs from texts that were there before: what stands between blank lines, as `LineDeduplication`."""

    unit = "paragraph"


def pieces_of(batch: DocumentBatch, text_field: str, unit: str) -> tuple[Any, Any, Any, Any]:
    """Hashes of the pieces of all texts, the documents that they are of, and where they stand in the buffer."""
    from gristmill.kernels.signatures import piece_hashes
    from gristmill.stages.text.filters.columns import texts_of

    return piece_hashes(texts_of(batch, text_field), unit)


class RemovePieces(Removal):
    """Takes pieces out of texts."""

    def __init__(self, name: str, text_field: str, unit: str, folder: Folder, records: Folder) -> None:
        super().__init__(name, folder, records)
        self.text_field = text_field
        self.unit = unit

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        from gristmill.stages.text.filters.columns import set_column, texts_of

        table = self.records_of(task)
        if table is None:
            return task
        gone = table.column("piece").to_numpy()
        texts = texts_of(task, self.text_field)
        _, document, begin, _ = pieces_of(task, self.text_field, self.unit)
        strings = task.data.column(self.text_field).to_pylist()
        stays = np.ones(len(document), bool)
        stays[gone] = False
        edges = np.searchsorted(document, np.arange(len(strings) + 1))
        touched = np.unique(document[gone]).tolist()
        for row in touched:
            some = slice(edges[row], edges[row + 1])
            strings[row] = self._without(texts.data, texts.starts[row], texts.ends[row], begin[some], stays[some])
        set_column(task, self.text_field, pa.array(strings, pa.large_string()))
        task.account.counters[f"{self.unit}s removed"] += len(gone)
        left = np.ones(len(strings), bool)
        left[[row for row in touched if not strings[row].strip()]] = False
        return task.keep(left, reason=NOTHING_LEFT)

    def _without(self, data: Any, first: int, last: int, begin: Any, stays: Any) -> str:
        """A text, which stands from ``first`` to ``last``, less the pieces that go and what stands behind each."""
        ends = [*begin[1:].tolist(), last]
        kept = [bytes(data[first : begin[0]])]
        for here, there, stay in zip(begin.tolist(), ends, stays.tolist(), strict=True):
            if stay:
                kept.append(bytes(data[here:there]))
        text = b"".join(kept).decode()
        return text if stays[-1] else text.rstrip("\n")
