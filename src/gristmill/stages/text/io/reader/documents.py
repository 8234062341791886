"""JSONL and Parquet files together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Self

from gristmill.secrets import without_query
from gristmill.stages.protocols import Paths, Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.listing import JSONL, PARQUET, File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.stages.text.io.reader.parquet import ParquetReader
from gristmill.stages.text.io.reader.sample import Some
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange


@builtin
class DocumentReader(FileReader):
    """Documents from JSONL and Parquet files, in one stream in the order of the sorted paths.

    Files that end in .parquet or .pq are read as `ParquetReader` does, all others as `JsonlReader` does; the arguments
    are the same. Fields of documents may differ between files.
    """

    loads = (*JsonlReader.loads, *ParquetReader.loads)
    extensions = (*JSONL, *PARQUET)
    _several = False
    """Whether a block becomes more than one batch."""

    def __init__(
        self,
        file_paths: Paths | None = None,
        files_per_partition: int | None = None,
        blocksize: int | str | None = None,
        fields: Sequence[str] | None = None,
        read_kwargs: dict[str, Any] | None = None,
        text_field: str | None = "text",
        limit: int | None = None,
        sample: float | None = None,
    ) -> None:
        super().__init__(file_paths, files_per_partition, blocksize, fields, read_kwargs, text_field, limit, sample)
        rest = (files_per_partition, blocksize, fields, read_kwargs, text_field, limit, sample)
        self._jsonl = JsonlReader(None, *rest)
        self._parquet = ParquetReader(None, *rest)

    def _of(self, path: str) -> JsonlReader | ParquetReader:
        """The reader for a file."""
        return self._parquet if without_query(path).lower().endswith(PARQUET) else self._jsonl

    def report_reading_to(self, note: Callable[[int], None]) -> None:
        self._jsonl.report_reading_to(note)
        self._parquet.report_reading_to(note)

    def preload(self) -> None:
        self._jsonl.preload()
        self._parquet.preload()

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        paths = task.data if isinstance(task, FileGroupTask) else [part.path for part in task.data]
        readers = {id(reader): reader for reader in map(self._of, paths)}
        if len(readers) <= 1:
            return next(iter(readers.values()), self._jsonl).process(task)
        return self._mixed(task)

    def _mixed(self, task: FileBlock | FileGroupTask) -> Iterator[DocumentBatch]:
        for _, group in groupby(task.data, lambda part: id(self._of(part if isinstance(part, str) else part.path))):
            part = copy.copy(task)
            part.data = list(group)  # type: ignore[assignment]  # of the same kind as those of the whole
            read: Any = self.process(part)
            yield from [read] if isinstance(read, DocumentBatch) else read

    def _groups(self, files: list[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        size = block_bytes or self._block_bytes_for(files)
        found: list[list[FileRange]] = []
        self._several = False
        for _, run in groupby(files, lambda file: id(self._of(file.path))):
            some = list(run)
            reader = self._of(some[0].path)
            groups = reader._groups(some, size)
            self._several |= any(reader._gives_several(FileBlock(group)) for group in groups)
            found += groups
        return found

    def _gives_several(self, block: FileBlock) -> bool:
        return self._several

    def _take_for(self, after: Stages) -> None:
        self._jsonl, self._parquet = copy.copy(self._jsonl), copy.copy(self._parquet)
        self._jsonl._take_for(after)
        self._parquet._take_for(after)

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = super().linked(before, after)
        clone._jsonl = copy.copy(clone._jsonl)
        clone._jsonl.seen = clone.seen
        return clone

    def _first_fields(self, part: FileRange) -> dict[str, set[str]]:
        return self._of(part.path)._first_fields(part)

    def _first_of(self, file: File, limit: int) -> tuple[int, File]:
        return self._of(file.path)._first_of(file, limit)

    def _estimated_bytes(self, file: File) -> int:
        return self._of(file.path)._estimated_bytes(file)

    def _some(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[Some]:
        found: list[Some] = []
        for reader in (self._jsonl, self._parquet):
            if near := [part for part in parts if self._of(part.path) is reader]:
                whole = copy.copy(reader)
                whole.sample = None
                found += whole._some(near, sizes, size)
        return found

    def held(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        return self._jsonl.held([block for block in blocks if self._of(block.data[0].path) is self._jsonl])
