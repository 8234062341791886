"""The base of readers of images and videos: folders of files that are planned together, and tables that name files."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

from gristmill.stages.image.io.reader.options import TABLES
from gristmill.stages.protocols import Stages
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.folders import ImageFolder
    from gristmill.stages.image.io.reader.sources import ImageSource
    from gristmill.stages.image.io.reader.tables import TableColumns

MANIFEST_BLOCK_BYTES = 64 << 10
"""The lines of a block of a manifest name a few hundred files."""
MOST_MANIFEST_BLOCKS = 100_000
MOST_CHANGED = 100
"""Changed files of folders that are listed."""


class MediaReader(FileReader):
    """Reads files of folders, planned and counted by folder, and files that the rows of tables name.

    A subclass finds them in `files_of`, and chooses what reads them in `_source_of`.
    """

    _folders: Sequence[ImageFolder] = ()
    _columns: TableColumns | None = None

    @abstractmethod
    def _source_of(self, one: FileRange | File | None) -> ImageSource:
        """What reads a file, or a part of it."""

    def process(self, task: FileBlock | FileGroupTask) -> Any:
        """Return the batch of a block, or an iterator of several."""
        if isinstance(task, FileGroupTask):
            return self._group(task)
        batches = self._source_of(task.data[0] if task.data else None).batches(task.data)
        return batches if self.makes_several_batches(task) else next(batches)

    def _group(self, task: FileGroupTask) -> Iterator[DocumentBatch]:
        """The contents of files that were given as a task."""
        reader = copy.copy(self)
        reader.file_paths = task.data
        for block in reader.source() or ():
            found = reader.process(block)
            yield from [found] if isinstance(found, DocumentBatch) else found

    def _rows(self, kind: str | None) -> FileReader:
        """The reader of the rows of tables."""
        from gristmill.stages.text.io.reader.jsonl import JsonlReader
        from gristmill.stages.text.io.reader.parquet import ParquetReader

        sizes = (self.files_per_partition, self.blocksize)
        storage = {"storage_options": self.options}
        rows = ParquetReader if kind == TABLES else JsonlReader
        return rows(None, *sizes, None, storage, None, self.limit, self.sample)

    def versions(self) -> list[tuple[str, str]]:
        return [(file.path, file.version) for file in self.found.files] if self._folders else super().versions()

    def changed_inputs(self) -> list[str]:
        from gristmill.stages.image.io.reader.folders import changes

        if not self._folders:
            return super().changed_inputs()
        return list(islice(changes(self._folders, self.options), MOST_CHANGED))

    def groups(self, files: Sequence[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        size = block_bytes or self._block_bytes_for(files)
        return self._source_of(files[0] if files else None).groups(files, size)

    def _block_bytes_for(self, files: Sequence[File]) -> int:
        if self._columns is None or not self._columns.is_linked or self.blocksize or self.files_per_partition:
            return super()._block_bytes_for(files)
        # few lines name many files
        total = sum(self.estimated_bytes(file) for file in files)
        return max(MANIFEST_BLOCK_BYTES, -(-total // MOST_MANIFEST_BLOCKS))

    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        sizes = {file.path: file.size or 0 for file in files}
        for part in chain.from_iterable(self._source_of(files[0]).groups(files, block_bytes)):
            yield part, min(sizes[part.path], block_bytes)

    @staticmethod
    def middle_of(parts: Sequence[FileRange], sizes: Mapping[str, int]) -> tuple[FileRange, int]:
        """Return the part in the middle, to sample the input, and its stored bytes."""
        middle = parts[len(parts) // 2]
        span = sum(max(part.stop - part.start, 0) for part in parts if part.path == middle.path)
        stored = sizes[middle.path]
        if middle.stop >= 0 and span:
            stored = stored * (middle.stop - middle.start) // span
        return middle, stored

    def makes_several_batches(self, block: FileBlock) -> bool:
        return any(self._source_of(part).makes_several_batches(part) for part in block.data)

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        return self._source_of(file).up_to_limit(file, limit)

    def holds(self, part: FileRange, path: str) -> bool:
        from gristmill.stages.image.io.reader.folders import FolderRange

        return part.holds(path) if isinstance(part, FolderRange) else part.path == path

    def linked(self, before: Stages, after: Stages) -> Self:
        if not before and self.found.blocks is None:
            self.source()  # the copy needs what it finds
        return super().linked(before, after)

    def reading_for(self, after: Stages) -> Self:
        clone = super().reading_for(after)
        clone._folders = ()  # blocks hold their parts of folders
        return clone
