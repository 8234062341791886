"""Documents and their keys, stored before a barrier and read again after it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.stages.barrier import KEYS, BarrierStage
from gristmill.stages.core import ProcessingStage, accounts_for_all
from gristmill.stages.protocols import Sink, Source
from gristmill.storage import Folder
from gristmill.tasks import BadRecord, DocumentBatch, FileGroupTask, ImageBatch, SpoolBlock, VideoTask, Written
from gristmill.tasks.document import ID, LOCATION, RAW, rows_of
from gristmill.tasks.names import block_of_file, part_name

if TYPE_CHECKING:
    import pyarrow as pa

DOCUMENTS = ".docs"
"""The end of the names of files that hold documents."""
FAILED = ".failed"
"""The end of the names of files with the failed rows of a part and the reasons, where the source is read again."""
EMPTY = b"gristmill.empty"
"""Key in the metadata of keys: the columns that are null in the whole part."""
REMOTE_BLOCK_BYTES = 64 << 10
"""Read ahead of a remote file."""
SMALL_BYTES = 1 << 20
"""A remote file below this size is read whole: parts of it would take several requests."""
SPOOLED = "the documents in " + "front of the cut"
"""The name of this input in run.json, which earlier versions have written."""
KINDS = {b"gristmill.images": ImageBatch, b"gristmill.videos": VideoTask}
"""Keys in the metadata of documents that are of such a type."""
PART = "spool_part"
"""Key in the metadata of a batch: the name of its part."""
OF_DOCUMENTS = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)
"""Errors that a document may cause. Others, of memory or of a storage, may not come again."""


def part_of(task: DocumentBatch) -> str:
    """The name of the part of a batch, without an end: the same before a barrier and after it."""
    part: str = task._metadata.get(PART) or part_name(task.task_id, "")
    return part


class Spool(Sink[DocumentBatch, FileGroupTask], builtin=True):
    """Writes the keys of each batch, and the batch itself if it is not read from the source again.

    Documents that earlier stages dropped are written as by ``writer``, the one at the end of the pipeline. With
    ``gives_up`` a document whose keys cannot be made is a bad record, and the others of its batch are processed.
    """

    accounts_for_documents = True
    split_on_failure = False  # a part of a batch would be another part

    def __init__(self, barrier: BarrierStage, folder: Folder, writer: Sink[Any, Any], with_documents: bool) -> None:
        self.name = f"keys of {barrier.name}"
        self.barrier = barrier
        self._folder = folder
        self.writer = writer
        self.excluded, self.scores, self.extension = writer.excluded, writer.scores, writer.extension
        self.with_documents = with_documents
        self.gives_up = False

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def excluded_writer(self) -> Sink[Any, Any]:
        return self.writer.excluded_writer

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        return self.writer.render(table, extra)

    def inputs(self) -> tuple[list[str], list[str]]:
        return self.barrier.inputs()

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def made_of(self) -> Sequence[object]:
        return (self.barrier, *self.barrier.made_of())

    def preload(self) -> None:
        self.barrier.preload()

    def setup(self, worker_metadata: Any = None) -> None:
        self.barrier.setup(worker_metadata)

    def process(self, task: DocumentBatch) -> FileGroupTask:
        # not the part before an earlier barrier: a later stage may have made several batches of it
        name = part_name(task.task_id, "")
        whole = left = task.data
        reasons: dict[int, str] = {}
        try:
            keys: pa.Table | None = self._keys(task, whole)
        except OF_DOCUMENTS:
            if not self.gives_up or not accounts_for_all(
                self
            ):  # of a stage that is not ours bad records are not accounted for
                raise
            reasons = self._reasons(task._with_data(whole))
            left = without(whole, reasons)
            keys = self._keys(task._with_data(left), whole) if left.num_rows else None
        files: list[tuple[str, Any]] = []
        written = FileGroupTask(dataset_name=task.dataset_name)
        if keys is not None:
            if self.with_documents:
                files.append((name + DOCUMENTS, in_arrow(_marked(left, task))))
            files.append((name + KEYS, in_arrow(keys)))
        if reasons:
            written.account.bad += bad_records(whole, reasons)
            if not self.with_documents:
                files.append((name + FAILED, fast_json.dumps(list(reasons.items()))))
        for n, (file, data) in enumerate(files):
            checksum = self.folder.write(file, data)
            written.data.append(self.folder.full_path(file))
            # the documents are counted once
            written.account.written.append(Written(file, 0 if n else left.num_rows, len(data), checksum))
        return written

    def _keys(self, task: DocumentBatch, whole: pa.Table) -> pa.Table:
        """The keys, with the names of empty columns in their metadata: some keys have no rows for null texts."""
        keys = self.barrier.keys(task)
        empty = [name for name in self.barrier.key_columns if whole.column(name).null_count == whole.num_rows]
        return keys.replace_schema_metadata({EMPTY: fast_json.dumps(empty)})

    def _reasons(self, task: DocumentBatch) -> dict[int, str]:
        """By row, in order, why the keys of a document cannot be made; found by halving the batch."""
        found: dict[int, str] = {}
        left = [(0, task.num_items)] if task.num_items else []
        while left:
            start, stop = left.pop()
            try:
                self.barrier.keys(task.slice(start, stop))
            except OF_DOCUMENTS as error:
                if stop - start == 1:
                    words = str(error).strip().partition("\n")[0]
                    found[start] = f"{self.name}: {type(error).__name__}: {words:.500}"
                else:
                    middle = (start + stop) // 2
                    left += [(middle, stop), (start, middle)]
        return found


def without(table: pa.Table, rows: Collection[int]) -> pa.Table:
    """A table without some of its rows."""
    return rows_of(table, [row for row in range(table.num_rows) if row not in rows])


def bad_records(table: pa.Table, reasons: Mapping[int, str]) -> Iterator[BadRecord]:
    """Rows of a table as records that could not be processed."""
    from gristmill.tasks.arrow import int_array

    there = [name for name in (ID, RAW) if name in table.column_names]
    rows = table.select(there).take(int_array(list(reasons))).to_pylist()
    for row, reason in zip(rows, reasons.values(), strict=True):
        file, _, position = str(row[ID]).rpartition("#")
        where = int(position) if position.isdecimal() else 0
        yield BadRecord(file or str(row[ID]), where, reason, row.get(RAW) or b"", is_failure=True)


class WithoutKeys(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Makes bad records of documents that failed before a barrier, where the source is read again after it.

    For ``parts`` files list the failed rows. Of ``blocks``, each with its reason, all documents failed but those of the
    parts that are ``known``.
    """

    accounts_for_documents = True
    split_on_failure = False

    def __init__(
        self, name: str, folder: Folder, parts: Sequence[str], blocks: Mapping[str, str], known: Sequence[str]
    ) -> None:
        self.name = name
        self.folder = folder
        self.parts = list(parts)
        self.blocks = dict(blocks)
        self.known = list(known)
        self._parts, self._known = frozenset(parts), frozenset(known)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        part = part_of(task)
        reasons: dict[int, str] = {}
        if part in self._parts:
            reasons = dict(fast_json.loads(self.folder.read(part + FAILED)))
        elif part not in self._known and (reason := self.blocks.get(str(block_of_file(part)))):
            reasons = dict.fromkeys(range(task.num_items), reason)
        if not reasons:
            return task
        if max(reasons) >= task.num_items:
            raise ValueError(f"{part} has fewer documents than it had: start over with --fresh.")
        left = task._with_data(without(task.data, reasons))
        left.account.bad += bad_records(task.data, reasons)
        return left


def is_empty(folder: Folder, part: str, column: str) -> bool:
    """Whether a column is null in all documents of a part."""
    empty = read_arrow(folder, part + KEYS, []).schema.metadata[EMPTY]
    return column in fast_json.loads(empty)


class SpoolReader(Source[SpoolBlock, DocumentBatch], builtin=True):
    """Reads documents that were stored before a barrier."""

    accounts_for_documents = True

    def __init__(self, folder: Folder, parts: Sequence[tuple[str, list[str]]], version: str) -> None:
        self.name = "read again"
        self.folder = folder
        self.parts = [(name, list(files)) for name, files in parts]
        """Each with the source files it comes from."""
        self.version = version

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def source(self) -> list[SpoolBlock]:
        return [SpoolBlock(name, files=files, task_id=str(n)) for n, (name, files) in enumerate(self.parts)]

    def versions(self) -> list[tuple[str, str]]:
        return [(SPOOLED, self.version)]

    def process(self, task: SpoolBlock) -> DocumentBatch:
        table = read_arrow(self.folder, task.data + DOCUMENTS)
        notes = dict(table.schema.metadata or {})
        kinds = [kind for mark, kind in KINDS.items() if notes.pop(mark, None) is not None]
        batch = (kinds or [DocumentBatch])[0](table.replace_schema_metadata(notes or None), task_id=task.task_id)
        batch._metadata[PART] = task.data
        read = Counter(str(ident).rpartition("#")[0] for ident in table.column(ID).to_pylist())
        known = set(task.files)
        # the file of a document that a stage has made is not known if there are several
        for file, n in read.items():
            batch.account.read[file if file in known or not task.files else task.files[0]] += n
        for file in task.files:
            batch.account.read[file] += 0
        return batch


def _marked(table: pa.Table, task: DocumentBatch) -> pa.Table:
    """The documents of a task with a note of its type, and without URLs that hold secrets."""
    table = table.drop_columns([LOCATION]) if LOCATION in table.column_names else table
    notes = {mark: b"" for mark, kind in KINDS.items() if isinstance(task, kind)}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **notes}) if notes else table


def in_arrow(table: pa.Table) -> pa.Buffer:
    """The content of an Arrow file, from which single columns can be read."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def read_arrow(folder: Folder, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of an Arrow file, or some of its columns. A local file is mapped into memory."""
    import pyarrow as pa

    if folder.is_local:
        with pa.memory_map(folder.path(name)) as source:
            table = pa.ipc.open_file(source).read_all()
        return table if columns is None else table.select(columns)
    # only the columns that are asked for: keys have many, and one or two are needed at a time
    with folder.fs.open(folder.path(name), "rb", block_size=REMOTE_BLOCK_BYTES) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if columns is None or size < SMALL_BYTES:
            table = pa.ipc.open_file(pa.BufferReader(file.read())).read_all()
            return table if columns is None else table.select(columns)
        schema = pa.ipc.open_file(file).schema
        if not columns:
            return schema.empty_table().select([])
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(column) for column in columns])
        return pa.ipc.open_file(file, options=options).read_all().select(columns)
