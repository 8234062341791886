"""Removal of lines and paragraphs that came before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage, Forecast, InputEstimate
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.arguments import check_count
from gristmill.stages.deduplication.remove import REMOVED, Removal
from gristmill.stages.registry import builtin
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING_LEFT = "nothing left but what other documents say"


@dataclass(eq=False, repr=False)
class PieceDeduplication(BarrierStage):
    """Keeps the first of equal pieces of text among all documents, in the order of the source."""

    text_field: str = "text"
    min_length: int = 1
    memory_limit: int | str | None = None
    id_field: str | None = None

    stays = (REMOVED,)
    unit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_count("min_length", self.min_length)
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self.key_columns = [self.text_field, *([self.id_field] if self.id_field else [])]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def preload(self) -> None:
        from gristmill.kernels import signatures

        signatures.preload(["pieces"])

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import IDENT, OWN_ID, SIZE, own_ids
        from gristmill.stages.deduplication.records import PIECE, ROW
        from gristmill.tasks.arrow import number_array, one_array
        from gristmill.tasks.document import ID

        hashes, document, _, _, size = pieces_of(batch, self.text_field, self.unit)
        long = np.flatnonzero(size >= self.min_length)
        rows = number_array(document[long].astype(np.int32))
        idents = {IDENT: batch.data.column(ID)}
        if self.id_field is not None:
            idents[OWN_ID] = own_ids(batch, self.id_field)
        return pa.table(
            {
                **{name: pa.DictionaryArray.from_arrays(rows, one_array(ids)) for name, ids in idents.items()},
                SIZE: number_array(size[long]),
                ROW: rows,
                PIECE: number_array((long - np.searchsorted(document, document[long])).astype(np.int32)),
                "h0": hashes[long, 0].copy(),
                "h1": hashes[long, 1].copy(),
            }
        )

    def decide(self, context: BarrierContext) -> None:
        from gristmill.stages.deduplication import decisions, link, match
        from gristmill.stages.deduplication.parts import Parts

        parts = Parts.found(context.folder)
        if not parts.documents:
            decisions.write_counts(context, parts, of_documents=False)
            return
        match.write_array(context.folder, link.STAYS, decisions.equal_keys(context, parts))
        removed = decisions.write_piece_records(context, parts, self.id_field is not None)
        context.notes.append(f"{self.name}: {removed:,} of {parts.documents:,} {self.unit}s were there before")

    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        return RemovePieces(self.name, self.text_field, self.unit, folder, records)

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        each = estimate.documents * estimate.seconds_each / max(1, estimate.keys)
        pieces = replace(estimate, documents=estimate.keys, seconds_each=each)
        found = Cost(pieces, memory, workers, stored, key_bytes=32).forecast()
        return Forecast(estimate.documents, estimate.text_bytes, found.memory_bytes, found.disk_bytes, found.seconds)


@builtin
class LineDeduplication(PieceDeduplication):
    r"""Removes lines that came before, in the same document or in an earlier one.

    Lines end in ``\n`` and are compared without the white space around them. Blank lines stay, and so do lines of
    fewer than ``min_length`` bytes without white space. A line is removed with its end; the rest of the text is
    unchanged. A document without any line left is dropped. Removed lines are listed in ``duplicates/``, with the values
    of ``id_field``.
    """

    unit = "line"


@builtin
class ParagraphDeduplication(PieceDeduplication):
    """Removes paragraphs that came before: text between blank lines, treated as in `LineDeduplication`.

    A paragraph is removed with its lines and the blank ones after it.
    """

    unit = "paragraph"


def pieces_of(batch: DocumentBatch, text_field: str, unit: str) -> tuple[Any, Any, Any, Any, Any]:
    """Return the hashes of all pieces, their documents, their begins and ends in the buffer, and their sizes."""
    from gristmill.kernels.signatures import piece_hashes
    from gristmill.stages.text.filters.columns import only_texts_of

    return piece_hashes(only_texts_of(batch, text_field), unit)


def without(batch: DocumentBatch, text_field: str, unit: str, rows: Any, pieces: Any) -> dict[int, str]:
    """Return by row the texts without some pieces, which are given by row, in order, and number in the row.

    A line is removed with its end, a paragraph with everything up to the next one.
    """
    from gristmill.stages.text.filters.columns import only_texts_of

    texts = only_texts_of(batch, text_field)
    _, document, begin, end, _ = pieces_of(batch, text_field, unit)
    gone = np.searchsorted(document, rows) + pieces
    if unit == "line":
        stop = np.minimum(end + 1, texts.ends[document])
    else:
        is_last = np.append(document[1:] != document[:-1], True)
        stop = np.where(is_last, texts.ends[document], np.append(begin[1:], 0))
    left: dict[int, str] = {}
    for row in np.unique(rows).tolist():
        some = gone[slice(*np.searchsorted(rows, [row, row + 1]))]
        edges = [texts.starts[row], *np.stack([begin[some], stop[some]], axis=1).ravel().tolist(), texts.ends[row]]
        kept = [bytes(texts.data[i:j]) for i, j in zip(edges[::2], edges[1::2], strict=True)]
        left[row] = b"".join(kept).decode()
    return left


class RemovePieces(Removal, builtin=True):
    """Removes pieces from texts."""

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

        from gristmill.stages.deduplication.records import PIECE, ROW
        from gristmill.stages.text.filters.columns import set_column
        from gristmill.tasks.arrow import numbers_of

        table = self.records_of(task)
        if table is None:
            return task
        rows, pieces = (numbers_of(table.column(name)) for name in (ROW, PIECE))
        left = without(task, self.text_field, self.unit, rows, pieces)
        task.account.counters[f"{self.unit}s removed"] += len(rows)
        mask = np.ones(task.num_items, bool)
        mask[[row for row, text in left.items() if not text.strip()]] = False
        strings = task.data.column(self.text_field).to_pylist()
        kept = [left.get(row, strings[row]) for row in np.flatnonzero(mask).tolist()]
        task = task.keep(mask, reason=NOTHING_LEFT)  # before texts change: dropped documents are shown as they were
        set_column(task, self.text_field, pa.array(kept, pa.large_string()))
        return task
