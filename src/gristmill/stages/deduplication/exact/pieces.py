"""Lines and paragraphs that were there before: removed from the texts of documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierStage, Between, Forecast, Looked
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.remove import REMOVED, counts_of
from gristmill.stages.registry import register
from gristmill.stages.spool import part_of
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.deduplication.parts import Parts

_BYTES_EACH = 500
"""Of memory, for each piece that is written down at the same time as others."""
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
        from gristmill.kernels.compile import preload

        preload([signatures.COUNT_LINES, signatures.HASH_PIECES])

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import IDENT, SIZE
        from gristmill.tasks.document import ID

        hashes, document, begin, end = pieces_of(batch, self.text_field, self.unit)
        long = np.flatnonzero(end - begin >= self.min_length)
        ids = batch.data.column(ID).combine_chunks()
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
            decisions.nothing(between, parts, -1)
            return
        tasks = match.tasks_for("exact", ["h0", "h1"], parts.documents, between.memory // (2 * between.workers))
        between.run("match", match.Match(parts), tasks, parts.documents * 16)
        first = np.arange(parts.documents)
        link.unite(first, between.folder, [task.data for task in tasks])
        match.write_array(between.folder, link.STAYS, link.clusters_of(first))
        groups = [PieceTask(some, task_id=str(n)) for n, some in enumerate(_in_groups(parts, between))]
        done = between.run("records", PieceRecord(parts, between.records), groups, parts.documents * 100)
        removed = {name: n for task in done for name, n in task.removed.items()}
        counts = {name: [-1, removed.get(name, 0)] for name in parts.names}
        between.folder.write(REMOVED, fast_json.dumps(counts))
        between.notes.append(
            f"{self.name}: {sum(removed.values()):,} of {parts.documents:,} {self.unit}s were there before"
        )

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


def _in_groups(parts: Parts, between: Between) -> Iterator[list[int]]:
    """Parts in a row whose pieces, if all of them went, could be written down at the same time."""
    most = max(100_000, between.memory // (4 * between.workers * _BYTES_EACH))
    group: list[int] = []
    for part in range(len(parts)):
        if group and parts.starts[part + 1] - parts.starts[group[0]] > most:
            yield group
            group = []
        group.append(part)
    yield group


def pieces_of(batch: DocumentBatch, text_field: str, unit: str) -> tuple[Any, Any, Any, Any]:
    """Hashes of the pieces of all texts, the documents that they are of, and where they stand in the buffer."""
    from gristmill.kernels.signatures import piece_hashes
    from gristmill.stages.text.filters.columns import texts_of

    return piece_hashes(texts_of(batch, text_field), unit)


@dataclass
class PieceTask(Task[list[int]]):
    """Parts whose removed pieces are to be written down."""

    data: list[int] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)


class PieceRecord(ProcessingStage[PieceTask, PieceTask]):
    """Writes a Parquet file for each part of which pieces are removed."""

    def __init__(self, parts: Parts, records: Folder) -> None:
        self.name = "records"
        self.parts = parts
        self.records = records

    def process(self, task: PieceTask) -> PieceTask:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.stages.deduplication.link import STAYS
        from gristmill.stages.deduplication.match import read_array
        from gristmill.stages.deduplication.parts import IDENT

        parts = self.parts
        stays = read_array(parts.folder, STAYS)
        gone = {}
        for part in task.data:
            begin, end = parts.starts[part], parts.starts[part + 1]
            own = np.arange(begin, end)
            if len(rows := own[np.asarray(stays[begin:end]) != own]):
                gone[part] = rows
        done = PieceTask(task.data, task_id=task.task_id)
        if not gone:
            return done
        every = np.concatenate(list(gone.values()))
        mine = parts.take(every, [IDENT, "piece"])
        theirs = parts.take(np.asarray(stays[every]), [IDENT])
        whole = pa.table({"id": mine.column(IDENT), "survivor": theirs.column(IDENT), "piece": mine.column("piece")})
        at = 0
        for part, rows in gone.items():
            sink = pa.BufferOutputStream()
            pq.write_table(whole.slice(at, len(rows)), sink)
            at += len(rows)
            self.records.write(f"{parts.names[part]}.parquet", sink.getvalue())
            done.removed[parts.names[part]] = len(rows)
        return done


class RemovePieces(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes pieces out of texts that the records name."""

    loads = ("pyarrow.parquet",)
    split_on_failure = False

    def __init__(self, name: str, text_field: str, unit: str, folder: Folder, records: Folder) -> None:
        self.name = name
        self.text_field = text_field
        self.unit = unit
        self.folder = folder
        self.records = records
        self._counts: dict[str, list[int]] = {}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def setup(self, worker_metadata: Any = None) -> None:
        self._counts = fast_json.loads(self.folder.read(REMOVED))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.stages.text.filters.columns import set_column, texts_of

        part = part_of(task)
        count = counts_of(self._counts, part, task.num_items)
        if not count:
            return task
        gone = pq.read_table(pa.BufferReader(self.records.read(f"{part}.parquet"))).column("piece").to_numpy()
        if len(gone) != count:
            raise ValueError(f"the records of {part} are not complete: start over with --fresh.")
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
