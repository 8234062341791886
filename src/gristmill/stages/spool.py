"""Documents, and keys of them, put aside in the middle of a pipeline, and read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.stages.barrier import KEYS, BarrierStage
from gristmill.stages.core import ProcessingStage
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, FileGroupTask, SpoolBlock, Written
from gristmill.tasks.document import ID
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

DOCUMENTS = ".docs"
"""How the names of files end that hold documents."""
EMPTY = b"gristmill.empty"
"""In the metadata of keys: the columns of which all of the part is null."""
PART = "spool_part"
"""In the metadata of a batch: the part that it was."""


def part_of(task: DocumentBatch) -> str:
    """The name of the part that a batch is, without an end: the same in front of a cut and behind it."""
    part: str = task._metadata.get(PART) or part_name(task.task_id, "")
    return part


class Spool(ProcessingStage[DocumentBatch, FileGroupTask]):
    """Writes the keys of each batch, and the batch itself if it is not to be read from the source again.

    Documents that stages in front have dropped are written as ``writer``, the one at the end of the pipeline, does.
    """

    split_on_failure = False  # a part of a batch would be another part

    def __init__(self, barrier: BarrierStage, folder: Folder, writer: Any, with_documents: bool) -> None:
        self.name = f"keys of {barrier.name}"
        self.barrier = barrier
        self.folder = folder
        self.writer = writer
        self.with_documents = with_documents

    @property
    def excluded(self) -> bool | float:
        share: bool | float = self.writer.excluded
        return share

    @property
    def extension(self) -> str:
        end: str = self.writer.extension
        return end

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        content: bytes = self.writer.render(table, extra)
        return content

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
        # not the part that it was in front of an earlier cut: a stage since then may have made several of one
        name = part_name(task.task_id, "")
        files = []
        written = FileGroupTask(dataset_name=task.dataset_name)
        if self.with_documents:
            files.append((name + DOCUMENTS, in_arrow(task.data)))
        files.append((name + KEYS, in_arrow(self._keys(task))))
        for n, (file, data) in enumerate(files):
            self.folder.write(file, data)
            written.data.append(self.folder.full_path(file))
            # the documents are counted once
            written.account.written.append(Written(file, 0 if n else task.num_items, data.size))
        return written

    def _keys(self, task: DocumentBatch) -> pa.Table:
        """The keys, and in their metadata the columns that hold nothing: of null texts some keys have no rows."""
        keys = self.barrier.keys(task)
        table = task.data
        empty = [name for name in self.barrier.key_columns if table.column(name).null_count == table.num_rows]
        return keys.replace_schema_metadata({EMPTY: fast_json.dumps(empty)})


def is_empty(folder: Folder, part: str, column: str) -> bool:
    """Whether no document of a part has anything in a column."""
    told = read_arrow(folder, part + KEYS, []).schema.metadata[EMPTY]
    return column in fast_json.loads(told)


class SpoolReader(ProcessingStage[SpoolBlock, DocumentBatch]):
    """Reads what was put aside."""

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
        return [("the documents in front of the cut", self.version)]

    def process(self, task: SpoolBlock) -> DocumentBatch:
        table = read_arrow(self.folder, task.data + DOCUMENTS)
        batch = DocumentBatch(table, task_id=task.task_id)
        batch._metadata[PART] = task.data
        read = Counter(str(ident).rpartition("#")[0] for ident in table.column(ID).to_pylist())
        known = set(task.files)
        # of a document that a stage has made it is not known which file of several it comes from
        for file, n in read.items():
            batch.account.read[file if file in known or not task.files else task.files[0]] += n
        for file in task.files:
            batch.account.read[file] += 0
        return batch


def in_arrow(table: pa.Table) -> pa.Buffer:
    """A table as the content of an Arrow file, from which single columns can be read."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def read_arrow(folder: Folder, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table out of an Arrow file, or some of its columns; from a disk nothing is read before it is looked at."""
    import pyarrow as pa

    if folder.is_local:
        with pa.memory_map(folder.path(name)) as source:
            table = pa.ipc.open_file(source).read_all()
        return table if columns is None else table.select(columns)
    with folder.fs.open(folder.path(name), "rb") as file:
        data = file.read()
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    return table if columns is None else table.select(columns)
